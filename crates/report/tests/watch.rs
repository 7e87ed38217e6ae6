//! The live pages, asked byte by byte: what they show, and what they refuse.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use common::{Events, ask, connect, get, record, run, send, serve, status};

fn append(folder: &Path, name: &str, text: &str) {
    let log = folder.join(name).join("metrics.jsonl");
    File::options().append(true).open(log).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn runs_are_listed_shown_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "one", &(record(10, 6.5) + &record(20, 5.25)));
    run(folder.path(), "deep/two", &record(10, 4.75));
    fs::create_dir(folder.path().join("broken")).unwrap();
    fs::write(folder.path().join("broken/config.toml"), "nonsense").unwrap();
    let (address, _) = serve(folder.path(), false);
    let list = get(address, "/");
    assert_eq!(status(&list), 200);
    for expected in ["href=\"/run/one\"", "href=\"/run/deep/two\"", "unfinished", "5.25", "unreadable", "spark"] {
        assert!(list.contains(expected), "{expected}: {list}");
    }
    for header in
        ["content-security-policy: default-src 'none';", "x-content-type-options: nosniff", "cache-control: no-store"]
    {
        assert!(list.contains(header), "{header}: {list}");
    }
    let page = get(address, "/run/deep/two");
    for expected in ["<h1>deep/two</h1>", "Loss = divergence", "data-part=\"charts\"", "given: my.toml:1"] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    assert!(!page.contains("id=\"stop\""), "nobody may stop a run here");
    let both = get(address, "/compare?run=one&run=deep%2Ftwo&run=one");
    assert!(both.contains("2 runs side by side") && both.contains("deep/two") && both.contains("5.25"), "{both}");
    let broken = get(address, "/run/broken");
    assert!(status(&broken) == 200 && broken.contains("unreadable"), "{broken}");
    assert_eq!(status(&get(address, "/compare")), 400);
    assert_eq!(status(&get(address, &format!("/compare?{}", "run=one&".repeat(3)))), 200, "of itself alone");
    let many: String = (0..13).map(|i| format!("run={i}&")).collect();
    assert_eq!(status(&get(address, &format!("/compare?{many}"))), 400);
    assert_eq!(status(&get(address, "/compare?run=one&run=three")), 404);
    for script in ["/page.js", "/watch.js"] {
        assert!(get(address, script).contains("text/javascript"), "{script}");
    }
}

#[test]
fn the_report_of_a_run_is_shown_apart_from_the_server() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("runs");
    let page = format!("{}\n<html><script>alert(1)</script></html>", report::page::FIRST_LINE);
    for name in ["deep/with it", "none", "other", "large", "linked"] {
        run(&folder, name, &record(10, 6.5));
    }
    fs::write(folder.join("deep/with it/report.html"), &page).unwrap();
    fs::write(folder.join("other/report.html"), "<script>alert(1)</script>").unwrap();
    let mut large = page.clone();
    large.push_str(&" ".repeat(17 << 20));
    fs::write(folder.join("large/report.html"), large).unwrap();
    fs::write(above.path().join("report.html"), &page).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(above.path().join("report.html"), folder.join("linked/report.html")).unwrap();
    let (address, _) = serve(&folder, false);
    assert!(get(address, "/run/deep/with it".replace(' ', "%20").as_str()).contains("href=\"/report/deep/with%20it\""));
    let report = get(address, "/report/deep/with%20it");
    assert!(status(&report) == 200 && report.ends_with(&page), "{report}");
    let policies: Vec<&str> = report.lines().filter(|line| line.starts_with("content-security-policy:")).collect();
    assert_eq!(policies.len(), 1, "{policies:?}");
    assert!(policies[0].contains("sandbox allow-scripts;") && !policies[0].contains("same-origin"), "{policies:?}");
    assert!(policies[0].contains("default-src 'none'") && !policies[0].contains("connect-src"), "{policies:?}");
    assert!(!get(address, "/run/none").contains("/report/"), "there is nothing to lead to");
    for name in ["none", "other", "large", "linked", "nobody", "..", "deep/with%20it/.."] {
        assert_eq!(status(&get(address, &format!("/report/{name}"))), 404, "{name}");
    }
    let mut events = Events::of(address, "/events/runs?run=none");
    assert!(!events.next().to_string().contains("/report/none"));
    fs::write(folder.join("none/report.html"), &page).unwrap();
    events.until(|event| event.to_string().contains("/report/none"));
}

#[test]
fn pages_are_told_when_a_log_grows_and_when_it_is_cut_back() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "a", &record(10, 6.5));
    let (address, _) = serve(folder.path(), false);
    let mut list = Events::of(address, "/events/list");
    let first = list.next();
    assert_eq!(first["order"], serde_json::json!(["a"]));
    assert!(first["rows"]["a"].as_str().unwrap().contains("6.5"));
    let mut page = Events::of(address, "/events/runs?run=a");
    assert!(page.next()["parts"]["tiles"].as_str().unwrap().contains("6.5"));
    append(folder.path(), "a", &(record(20, 5.125) + "{\"step\":30,\"loss\":4."));
    let shows = |value: &str| {
        let value = value.to_owned();
        move |event: &serde_json::Value| event.to_string().contains(&value)
    };
    page.until(shows("5.125"));
    let row = list.until(shows("5.125"));
    assert_eq!(row["order"], serde_json::Value::Null, "the runs are the same");
    append(folder.path(), "a", "0625}\n{\"step\":40,\"loss\":\"NaN\",\"gradient_norm\":\"inf\"}\n");
    let odd = page.until(shows("not a number"));
    assert!(odd.to_string().contains("4.0625"), "the point before is in the curve: {odd}");
    // As a run does that is continued from its checkpoint after step 10.
    let log = folder.path().join("a/metrics.jsonl");
    fs::write(folder.path().join("new"), record(10, 6.5) + &record(20, 3.875)).unwrap();
    fs::rename(folder.path().join("new"), log).unwrap();
    let again = page.until(shows("3.875")).to_string();
    assert!(!again.contains("5.125") && !again.contains("4.0625"), "what was cut off is gone: {again}");
    run(folder.path(), "b", &record(10, 2.5));
    let both = list.until(|event| !event["order"].is_null());
    assert_eq!(both["order"], serde_json::json!(["a", "b"]));
}

#[test]
fn hostile_names_and_numbers_are_shown_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let long = "n".repeat(150);
    let names = ["<img src=x onerror=alert(1)>", "a\"'&b", "\u{202e}gnp.exe", "100%?#x", "..."];
    for name in names {
        run(folder.path(), name, &record(10, 6.5));
    }
    run(
        folder.path(),
        &format!("{long}/{long}"),
        "{\"step\":1,\"loss\":\"inf\",\"</script>\":1}\n{\"step\":2,\"loss\":1e999}\n",
    );
    let (address, _) = serve(folder.path(), false);
    let list = get(address, "/");
    assert!(!list.contains("<img") && !list.contains('\u{202e}'), "{list}");
    // Every address in the list leads to its run.
    let links: Vec<&str> = list.split("href=\"/run/").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(links.len(), names.len() + 1, "{links:?}");
    for link in links {
        let page = get(address, &format!("/run/{link}"));
        assert_eq!(status(&page), 200, "{link}: {page}");
        assert!(!page.contains("<img") && !page.contains('\u{202e}') && page.contains("<h1>"), "{page}");
        let mut events = Events::of(address, &format!("/events/runs?run={link}"));
        assert!(events.next()["parts"]["head"].as_str().unwrap().contains("<h1>"));
    }
    let page = get(address, &format!("/run/{long}/{long}"));
    assert!(page.contains("<b>infinity</b>"), "{page}");
}

#[test]
fn no_path_leaves_the_folder() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("runs");
    run(&folder, "a", &record(10, 6.5));
    run(above.path(), "secret", &record(10, 0.123_456));
    fs::write(above.path().join("key"), "keyword-of-somebody = 3").unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink(above.path().join("secret"), folder.join("linked")).unwrap();
        for (name, file) in [("c", "config.toml"), ("m", "metrics.jsonl"), ("r", "result.json")] {
            run(&folder, name, &record(10, 6.5));
            _ = fs::remove_file(folder.join(name).join(file));
            symlink(above.path().join("key"), folder.join(name).join(file)).unwrap();
        }
    }
    let (address, _) = serve(&folder, false);
    for path in [
        "/run/..%2fsecret",
        "/run/../secret",
        "/run/%2e%2e/secret",
        "/run/a/../../secret",
        "/run/a%2f..%2f..%2fsecret",
        "/run/..%5csecret",
        "/run/%252e%252e%252fsecret",
        "/run//etc/passwd",
        "/run/%2fetc%2fpasswd",
        "/run/a%00",
        "/run/%ff",
        "/run/a/",
        "/run/linked",
        "/run/.",
        "/../secret/config.toml",
        "/compare?run=..%2Fsecret",
        "/compare?run=a&run=../secret",
        "/events/runs?run=../secret",
        "/page.js/../../secret",
    ] {
        let answer = get(address, path);
        assert!([400, 404].contains(&status(&answer)), "{path}: {answer}");
        assert!(!answer.contains("0.1235") && !answer.contains("root:"), "{path}: {answer}");
    }
    let list = get(address, "/");
    assert!(!list.contains("linked") && !list.contains("keyword"), "{list}");
    #[cfg(unix)]
    for name in ["c", "m", "r"] {
        let page = get(address, &format!("/run/{name}"));
        assert!(page.contains("is a link to a place outside the run") && !page.contains("keyword"), "{page}");
    }
}

#[test]
fn only_this_machine_is_meant_and_only_looking_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "a", &record(10, 6.5));
    let (address, _) = serve(folder.path(), false);
    let port = address.port();
    let host = |host: &str| status(&send(address, format!("GET / HTTP/1.1\r\n{host}\r\n").as_bytes()));
    assert_eq!(host(&format!("Host: localhost:{port}\r\n")), 200);
    for foreign in ["evil.example", "localhost.evil.example", "192.168.1.7"] {
        assert_eq!(host(&format!("Host: {foreign}:{port}\r\n")), 403, "{foreign}");
    }
    assert_eq!(host("Host: localhost:1\r\n"), 403);
    assert_eq!(host(""), 400);
    assert_eq!(host(&format!("Host: {address}\r\nHost: evil.example\r\n")), 403);
    let absolute = format!("GET http://evil.example/ HTTP/1.1\r\nHost: {address}\r\n\r\n");
    assert_eq!(status(&send(address, absolute.as_bytes())), 403);
    let cross = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\n";
    assert_eq!(status(&ask(address, "GET", "/events/list", cross)), 403);
    for method in ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW"] {
        for path in ["/", "/run/a", "/stop/a", "/events/list"] {
            let answer = ask(address, method, path, "Content-Length: 0\r\n");
            assert_eq!(status(&answer), 405, "{method} {path}: {answer}");
            assert!(answer.contains("allow: GET"), "{answer}");
        }
    }
    assert_eq!(status(&send(address, b"nonsense\r\n\r\n")), 400);
}

#[test]
fn a_run_is_stopped_only_by_who_knows_the_token_and_only_where_one_trains() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "a", &record(10, 6.5));
    let (address, url) = serve(folder.path(), true);
    let token = url.split_once("#token=").unwrap().1;
    assert_eq!(token.len(), 32, "{url}");
    assert!(!get(address, "/run/a").contains(token), "whoever opens a page without it does not learn it");
    let post = |path: &str, more: &str| ask(address, "POST", path, &format!("Content-Length: 0\r\n{more}"));
    let known = format!("X-Dino-Vmf-Token: {token}\r\n");
    assert_eq!(status(&post("/stop/a", "")), 403);
    assert_eq!(status(&post("/stop/a", "X-Dino-Vmf-Token: 00000000000000000000000000000000\r\n")), 403);
    assert_eq!(status(&post("/stop/a", &format!("{known}Origin: http://evil.example\r\n"))), 403);
    let answer = post("/stop/a", &known);
    assert!(status(&answer) == 409 && answer.contains("nobody is training this run"), "{answer}");
    assert_eq!(status(&post("/stop/..%2fa", &known)), 404);
    assert_eq!(status(&post("/", &known)), 405);
    assert_eq!(status(&ask(address, "GET", "/stop/a", &known)), 405);
}

#[test]
fn slow_and_huge_requests_are_refused_and_others_answered_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "a", &record(10, 6.5));
    let (address, url) = serve(folder.path(), true);
    // More than there is room for, each of which begins a request and does not end it.
    let begun: Vec<_> = (0..60)
        .map(|_| {
            let mut stream = connect(address);
            write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nX-Slow: ").unwrap();
            stream
        })
        .collect();
    assert_eq!(status(&get(address, "/")), 200);
    let huge = format!("GET / HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!([0, 431].contains(&status(&send(address, huge.as_bytes()))));
    let address_of_it = format!("GET /{} HTTP/1.1\r\nHost: {address}\r\n\r\n", "x".repeat(1 << 20));
    assert!([0, 414, 431].contains(&status(&send(address, address_of_it.as_bytes()))));
    let many = format!("GET / HTTP/1.1\r\nHost: {address}\r\n{}\r\n", "X: y\r\n".repeat(1000));
    assert!([0, 431].contains(&status(&send(address, many.as_bytes()))));
    let token = url.split_once("#token=").unwrap().1;
    let body = format!(
        "POST /stop/a HTTP/1.1\r\nHost: {address}\r\nX-Dino-Vmf-Token: {token}\r\nContent-Length: 9000000\r\n\r\n{}",
        "x".repeat(1 << 16)
    );
    assert!([0, 413].contains(&status(&send(address, body.as_bytes()))));
    // Those that do not go on are closed without having been answered.
    for mut stream in begun {
        let mut answer = String::new();
        _ = stream.read_to_string(&mut answer);
        assert!([0, 408].contains(&status(&answer)), "{answer}");
    }
    // More connections than there is room for: the server lives on.
    let crowd: Vec<_> = (0..200).map(|_| connect(address)).collect();
    drop(crowd);
    let answered = (0..100).any(|_| status(&get(address, "/")) == 200);
    assert!(answered);
}
