//! Few-shot splits that others have drawn: text files with the name of an image a line, as MSN publishes them for ImageNet
//! (`imagenet_subsets{1,2,3}/{1,2,5}imgs_class.txt`, `1percent.txt`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Draw, Shots};
use crate::error::EvalError;

/// A text of this size lists no few images.
const TEXT_BYTES: u64 = 64 << 20;

/// The files of one size of draw, a split each.
#[derive(Clone, Debug, PartialEq)]
pub struct Lists {
    /// What they hold.
    pub shots: Shots,
    /// One file for each split.
    pub files: Vec<PathBuf>,
}

/// The lists below a folder in MSN's layout, or those in the folder itself where it has them. Of the third split the file with five
/// images of each class is called `3imgs_class.txt`, by mistake; it is taken where there is no `5imgs_class.txt`.
pub fn find(folder: &Path) -> Result<Vec<Lists>, EvalError> {
    let unreadable = |source| EvalError::Read { path: folder.to_owned(), source };
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders.insert(0, folder.to_owned());
    let first_of =
        |folder: &PathBuf, names: &[&str]| names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let kinds: [(Shots, &[&str]); 4] = [
        (Shots::PerClass(1), &["1imgs_class.txt"]),
        (Shots::PerClass(2), &["2imgs_class.txt"]),
        (Shots::PerClass(5), &["5imgs_class.txt", "3imgs_class.txt"]),
        (Shots::Percent(1.0), &["1percent.txt"]),
    ];
    let of_kind = |&(shots, names): &(Shots, &[&str])| Lists {
        shots,
        files: folders.iter().filter_map(|folder| first_of(folder, names)).collect(),
    };
    let found: Vec<Lists> = kinds.iter().map(of_kind).filter(|lists| !lists.files.is_empty()).collect();
    match found.is_empty() {
        false => Ok(found),
        true => Err(EvalError::List {
            path: folder.to_owned(),
            problem:
                "has no few-shot lists: looked for 1imgs_class.txt, 2imgs_class.txt, 5imgs_class.txt and 1percent.txt \
                      in it and in its folders"
                    .to_owned(),
        }),
    }
}

/// The rows of the training set that a list names, by file name alone: names hold the class in MSN's lists, and no two images
/// of ImageNet share one.
pub fn read(list: &Path, names: &[String]) -> Result<Draw, EvalError> {
    let problem = |problem: String| EvalError::List { path: list.to_owned(), problem };
    let unreadable = |source| EvalError::Read { path: list.to_owned(), source };
    let text = files::read_text_bounded(list, TEXT_BYTES).map_err(unreadable)?;
    let mut rows_by_name: HashMap<&str, Option<usize>> = HashMap::with_capacity(names.len());
    for (row, name) in names.iter().enumerate() {
        // A name that occurs twice names neither.
        rows_by_name.entry(file_name(name)).and_modify(|row| *row = None).or_insert(Some(row));
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for line in lines {
        match rows_by_name.get(file_name(line)) {
            Some(Some(row)) => rows.push(*row),
            Some(None) => {
                return Err(problem(format!(
                    "names {}, and several training images are called so",
                    text::excerpt(line)
                )));
            }
            None => missing.push(line),
        }
    }
    if let Some(first) = missing.first() {
        return Err(problem(format!(
            "names {} that the training images do not have, the first: {}",
            text::count(missing.len(), "image"),
            text::excerpt(first)
        )));
    }
    if rows.is_empty() {
        return Err(problem("names no images".to_owned()));
    }
    let before = rows.len();
    rows.sort_unstable();
    rows.dedup();
    if rows.len() < before {
        return Err(problem(format!("names {} twice", text::count(before - rows.len(), "image"))));
    }
    Ok(Draw { rows, name: text::shown(list).to_string() })
}

/// Behind the last slash.
fn file_name(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn lists_are_found_in_msns_layout_with_the_file_of_the_wrong_name() {
        let folder = tempfile::tempdir().unwrap();
        for (split, five) in [(1, "5imgs_class.txt"), (2, "5imgs_class.txt"), (3, "3imgs_class.txt")] {
            let split = folder.path().join(format!("imagenet_subsets{split}"));
            fs::create_dir(&split).unwrap();
            ["1imgs_class.txt", "2imgs_class.txt", five]
                .iter()
                .for_each(|name| fs::write(split.join(name), "x").unwrap());
        }
        fs::write(folder.path().join("imagenet_subsets1/1percent.txt"), "x").unwrap();
        let found = find(folder.path()).unwrap();
        let counts: Vec<_> = found.iter().map(|lists| (lists.shots, lists.files.len())).collect();
        let shots = Shots::PerClass;
        assert_eq!(counts, [(shots(1), 3), (shots(2), 3), (shots(5), 3), (Shots::Percent(1.0), 1)]);
        assert!(found[2].files[2].ends_with("imagenet_subsets3/3imgs_class.txt"));
        let empty = tempfile::tempdir().unwrap();
        assert!(find(empty.path()).unwrap_err().to_string().contains("no few-shot lists"));
    }

    #[test]
    fn rows_are_found_by_file_name_and_problems_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("1imgs_class.txt");
        let names = ["n01/n01_1.JPEG", "n01/n01_2.JPEG", "n02/n02_7.JPEG", "a/x.png", "b/x.png"].map(str::to_owned);
        let read_text = |text: &[u8]| {
            fs::write(&list, text).unwrap();
            read(&list, &names).map(|draw| draw.rows).map_err(|error| error.to_string())
        };
        assert_eq!(read_text(b"n02_7.JPEG\r\n\nn01_1.JPEG\n"), Ok(vec![0, 2]));
        let error = read_text(b"n01_1.JPEG\nn03_4.JPEG\nn03_5.JPEG").unwrap_err();
        assert!(
            error.contains("names 2 images that the training images do not have, the first: n03_4.JPEG"),
            "{error}"
        );
        assert!(read_text(b"x.png").unwrap_err().contains("several training images"));
        assert!(read_text(b"n01_1.JPEG\nn01_1.JPEG").unwrap_err().contains("1 image twice"));
        assert!(read_text(b"\n").unwrap_err().contains("names no images"));
        assert!(read_text(b"\xff\xfe").unwrap_err().contains("cannot be read"));
        assert!(matches!(read(&folder.path().join("none.txt"), &names), Err(EvalError::Read { .. })));
    }
}
