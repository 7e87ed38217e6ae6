//! The ground truth of a revisited benchmark, from its official pickle.
//!
//! The file is a dict: `imlist` and `qimlist` are names of images, `gnd` has a dict for each query with the numbers of database
//! images (`easy`, `hard`, `junk`) and the part of the query image that is meant (`bbx`). Whoever wrote the file may have
//! written anything else into it: nothing is run, and whatever would run is refused by name.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use files::numpy;
use files::pickle::{Limits, Node, NodeId, Pickle};

use super::error::RetrievalError;

/// The official files have some 150 KB.
const FILE_BYTES: u64 = 64 << 20;
const LIMITS: Limits = Limits { nodes: 1 << 22, bytes: 256 << 20 };
/// Numbers of images in all lists together: a pickle can name one list many times.
const MAX_NUMBERS: usize = 1 << 24;

/// What a ground truth may be made of besides Python's own types: modules and the names in them.
const HARMLESS: [(&str, &[&str]); 7] = [
    ("numpy", &["ndarray", "dtype"]),
    ("numpy.core.multiarray", &["_reconstruct", "scalar"]),
    ("numpy._core.multiarray", &["_reconstruct", "scalar"]),
    ("numpy.core.numeric", &["_frombuffer"]),
    ("numpy._core.numeric", &["_frombuffer"]),
    ("_codecs", &["encode"]),
    ("collections", &["OrderedDict"]),
];

/// A query and its right answers, as numbers of database images.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The image.
    pub name: String,
    /// Clearly the same building.
    pub easy: Vec<u32>,
    /// The same building, hard to recognise.
    pub hard: Vec<u32>,
    /// Neither right nor wrong.
    pub junk: Vec<u32>,
    /// The part of the image that is meant: left, top, right, bottom in pixels.
    pub part: Option<[f64; 4]>,
}

/// What is searched, what is looked for, and what is to be found.
#[derive(Clone, Debug, PartialEq)]
pub struct GroundTruth {
    /// Names of the database images.
    pub database: Vec<String>,
    /// The queries.
    pub queries: Vec<Query>,
}

impl GroundTruth {
    /// Reads the official pickle.
    pub fn read(path: &Path) -> Result<Self, RetrievalError> {
        let bytes = files::read_bounded(path, FILE_BYTES)
            .map_err(|source| RetrievalError::Io { path: path.to_owned(), source })?;
        Self::from_pickle(&bytes, path)
    }

    /// The same from the bytes of the file at `path`, which errors name.
    pub fn from_pickle(bytes: &[u8], path: &Path) -> Result<Self, RetrievalError> {
        let pickle = Pickle::read(&mut &bytes[..], &LIMITS)
            .map_err(|source| RetrievalError::Pickle { path: path.to_owned(), source })?;
        if let Some(callable) = hostile(&pickle) {
            return Err(RetrievalError::Hostile { path: path.to_owned(), callable });
        }
        Reader { pickle, path: path.to_owned(), left: MAX_NUMBERS }.ground_truth()
    }
}

/// The first class or function that a list of images does not need, or an object that is none.
fn hostile(pickle: &Pickle) -> Option<String> {
    pickle.nodes().find_map(|(_, node)| match node {
        Node::Global(global) => {
            let (module, name) = (&*global.module, &*global.name);
            let is_python = matches!(module, "builtins" | "__builtin__") && matches!(name, "bytes" | "bytearray");
            let is_known = HARMLESS.iter().any(|(known, names)| *known == module && names.contains(&name));
            (!is_python && !is_known).then(|| format!("{module}.{name}"))
        }
        Node::Persistent(_) => Some("persistent_load".to_owned()),
        _ => None,
    })
}

struct Reader {
    pickle: Pickle,
    path: PathBuf,
    /// Numbers that may still be read.
    left: usize,
}

impl Reader {
    fn ground_truth(mut self) -> Result<GroundTruth, RetrievalError> {
        let root = self.pickle.root();
        let database = self.names(root, "imlist")?;
        let names = self.names(root, "qimlist")?;
        if database.is_empty() || names.is_empty() {
            return Err(self.form("it has no database images, or no queries".to_owned()));
        }
        let answers = self.items(root, "gnd")?;
        if answers.len() != names.len() {
            return Err(self.form(format!("`gnd` has {} entries for {} queries", answers.len(), names.len())));
        }
        let mut queries = Vec::with_capacity(names.len());
        for (name, answer) in names.into_iter().zip(answers) {
            queries.push(self.query(name, answer, database.len())?);
        }
        Ok(GroundTruth { database, queries })
    }

    fn query(&mut self, name: String, answer: NodeId, database: usize) -> Result<Query, RetrievalError> {
        let mut lists = Vec::with_capacity(3);
        for key in ["easy", "hard", "junk"] {
            lists.push(self.numbers(&name, answer, key, database)?);
        }
        let part = match self.pickle.get(answer, "bbx").filter(|&id| !self.pickle.is_none(id)) {
            None => None,
            Some(id) => {
                let sides = numpy::floats(&self.pickle, id, 4).unwrap_or_default();
                let part = <[f64; 4]>::try_from(sides).ok().filter(is_box);
                let what = || format!("`bbx` of query {} is no box of four numbers", text::excerpt(&name));
                Some(part.ok_or_else(|| self.form(what()))?)
            }
        };
        let mut lists = lists.into_iter();
        let mut next = || lists.next().unwrap_or_default();
        Ok(Query { name, easy: next(), hard: next(), junk: next(), part })
    }

    /// Numbers of database images, none twice.
    fn numbers(&mut self, query: &str, answer: NodeId, key: &str, database: usize) -> Result<Vec<u32>, RetrievalError> {
        let of = || format!("`{key}` of query {}", text::excerpt(query));
        let Some(id) = self.pickle.get(answer, key) else {
            // The benchmarks of 2007 and 2008 have `ok` instead.
            let hint = if self.pickle.get(answer, "ok").is_some() {
                "; it has `ok`, as the benchmarks before they were revisited"
            } else {
                ""
            };
            return Err(self.form(format!("{} is missing{hint}", of())));
        };
        let Some(values) = numpy::integers(&self.pickle, id, self.left) else {
            let kind = self.kind(id);
            return Err(self.form(format!("{} is {kind}, or too long, and should be a list of image numbers", of())));
        };
        self.left -= values.len();
        let mut seen = HashSet::with_capacity(values.len());
        let mut numbers = Vec::with_capacity(values.len());
        for value in values {
            let number = u32::try_from(value).ok().filter(|&number| (number as usize) < database);
            let Some(number) = number else {
                return Err(self.form(format!("{} names image {value}, and there are {database}", of())));
            };
            if !seen.insert(number) {
                return Err(self.form(format!("{} names image {value} twice", of())));
            }
            numbers.push(number);
        }
        Ok(numbers)
    }

    fn names(&self, root: NodeId, key: &str) -> Result<Vec<String>, RetrievalError> {
        let names = self.items(root, key)?;
        let name = |id: NodeId| self.pickle.text(id).map(str::to_owned);
        let named = names.iter().map(|&id| name(id).ok_or_else(|| self.kind(id))).collect::<Result<_, _>>();
        named.map_err(|kind| self.form(format!("`{key}` has {kind} where it should have names of images")))
    }

    fn items(&self, root: NodeId, key: &str) -> Result<Vec<NodeId>, RetrievalError> {
        let Some(id) = self.pickle.get(root, key) else {
            return Err(self.form(format!("it has no `{key}`, or is no dict: it is {}", self.kind(root))));
        };
        let items = self.pickle.items(id).map(<[NodeId]>::to_vec);
        items.ok_or_else(|| self.form(format!("`{key}` is {}, and should be a list", self.kind(id))))
    }

    fn kind(&self, id: NodeId) -> &'static str {
        self.pickle.node(id).kind()
    }

    fn form(&self, what: String) -> RetrievalError {
        RetrievalError::Form { path: self.path.clone(), what }
    }
}

fn is_box(&[left, top, right, bottom]: &[f64; 4]) -> bool {
    [left, top, right, bottom].iter().all(|side| side.is_finite()) && left < right && top < bottom
}
