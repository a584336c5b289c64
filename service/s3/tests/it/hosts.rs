//! The name of a host: of the endpoint, of one of its buckets, or of neither.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::common::{Ask, HttpClient, Running};
use crate::forms::Form;

/// A service with the buckets `vdata`, `vlogs` and an object in the latter.
fn running(domains: &[&str]) -> (Running, HttpClient) {
    let domains = domains.iter().map(|domain| (*domain).to_owned()).collect();
    let running = Running::start_with(|config| config.s3_domain = domains);
    let mut client = running.client();
    client.good(Ask::new("PUT", "/vdata"));
    client.good(Ask::new("PUT", "/vlogs"));
    client.good(Ask::new("PUT", "/vlogs/2024").body("precious"));
    (running, client)
}

fn on(method: &str, host: &str, path: &str) -> Ask {
    Ask::new(method, path).header("host", host)
}

fn buckets(client: &mut HttpClient) -> usize {
    let list = client.good(Ask::new("GET", "/"));
    list.text().matches("<Name>").count()
}

/// What a client says by virtual host must not be taken for a path: a put would overwrite an object
/// of another bucket, an empty one make a bucket, a delete delete one.
#[test]
fn a_request_to_the_host_of_a_bucket_never_reaches_another() {
    for domains in [&[][..], &["s3.other.test"]] {
        let (_running, mut client) = running(domains);
        for host in [
            "vdata.s3.example.test",
            "vdata.s3.example.test:9000",
            "VDATA.S3.example.test.",
            "vdata.localhost:9000",
        ] {
            for (method, path, body) in [
                ("PUT", "/vlogs/2024", "an object of vdata"),
                ("DELETE", "/vlogs/2024", ""),
                ("PUT", "/report", ""),
                ("DELETE", "/vdata", ""),
                ("GET", "/", ""),
                ("POST", "/vlogs", ""),
            ] {
                let said = client.refused(on(method, host, path).body(body), 400, "InvalidRequest");
                assert!(said.contains("s3-domain"), "{said}");
            }
        }
        assert_eq!(client.object("/vlogs/2024").unwrap(), b"precious");
        assert_eq!(buckets(&mut client), 2);
    }
}

/// Only a whole address is one, and a request is for one host.
#[test]
fn a_host_that_cannot_be_read_is_refused() {
    for domains in [&[][..], &["s3.example.test"]] {
        let (running, mut client) = running(domains);
        for host in [
            "[vdata].s3.example.test",
            "[::1].s3.example.test",
            "[::1",
            "vdata.s3.example.test:80:80",
            "x@vdata.s3.example.test",
            "vdata%2es3.example.test",
        ] {
            for method in ["PUT", "DELETE"] {
                let ask = on(method, host, "/vlogs/2024");
                client.refused(ask, 400, "InvalidRequest");
            }
        }
        for (one, other) in [("localhost", "vdata.s3.example.test"), ("a", "a")] {
            let ask = on("DELETE", one, "/vlogs/2024").unsigned("host", other);
            client.refused(ask, 400, "InvalidRequest");
        }
        assert_eq!(client.object("/vlogs/2024").unwrap(), b"precious");
        drop(running);
    }
}

/// The host of an absolute target is that of the request (RFC 9112, 3.2.2).
#[test]
fn the_host_of_an_absolute_target_wins() {
    let (running, mut client) = running(&["s3.example.test"]);
    let absolute = |host: &str, target: &str| {
        let ask = on("GET", host, "/vlogs/2024").unsigned("connection", "close");
        let text = String::from_utf8(ask.bytes(running.address)).unwrap();
        let text = text.replacen("GET /", &format!("GET http://{target}/"), 1);
        let mut stream = TcpStream::connect(running.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let bucket = "vdata.s3.example.test";
    for (host, target, status) in [
        ("localhost", "localhost", "HTTP/1.1 200 "),
        (bucket, bucket, "HTTP/1.1 404 "),
        // Signed for another host.
        ("localhost", bucket, "HTTP/1.1 403 "),
        ("localhost", "x@localhost", "HTTP/1.1 400 "),
    ] {
        let reply = absolute(host, target);
        assert!(reply.starts_with(status), "{host} {target}: {reply}");
    }
    assert_eq!(client.object("/vlogs/2024").unwrap(), b"precious");
}

#[test]
fn a_host_that_no_bucket_can_have_is_the_endpoint() {
    let (_running, mut client) = running(&[]);
    for host in [
        "localhost",
        "localhost:9000",
        "lumpscope:9000",
        "10.0.0.7",
        "[::1]:9000",
        "[fe80::1]",
        "objects.example.test",
        "s3.example.test:9000",
    ] {
        let got = client.good(on("GET", host, "/vlogs/2024"));
        assert_eq!(got.body, b"precious", "{host}");
    }
}

#[test]
fn a_domain_that_is_set_has_buckets_as_hosts() {
    let (running, mut client) = running(&["s3.example.test", "objects.lan"]);
    for (host, domain) in [
        ("vdata.s3.example.test", "s3.example.test"),
        ("vdata.objects.lan:9000", "objects.lan:9000"),
    ] {
        client.good(on("PUT", host, "/vlogs/2024").body("an object of vdata"));
        client.good(on("PUT", host, "/report").body(""));
        for path in ["/vdata/vlogs/2024", "/vdata/report"] {
            assert!(client.good(on("HEAD", domain, path)).status == 200);
        }
        let list = client.good(on("GET", host, "/").query("list-type", "2"));
        assert_eq!(list.element("Name").unwrap(), "vdata");
        assert_eq!(list.element("KeyCount").unwrap(), "2");
        client.good(on("DELETE", host, "/report"));
        client.good(on("DELETE", host, "/vlogs/2024"));
        assert_eq!(client.object("/vlogs/2024").unwrap(), b"precious");
        // A slash that begins a key belongs to it.
        client.good(on("PUT", host, "//").body("x"));
        assert_eq!(client.object("/vdata//").unwrap(), b"x");
        client.good(on("DELETE", host, "//"));
        assert_eq!(buckets(&mut client), 2);
    }
    // A bucket is made, found missing and deleted by its host, too.
    let host = "new.one.s3.example.test";
    client.refused(on("GET", host, "/"), 404, "NoSuchBucket");
    client.good(on("PUT", host, "/"));
    client.good(on("HEAD", host, "/"));
    client.good(on("DELETE", host, "/"));
    let ask = on("GET", "A_B.s3.example.test", "/");
    let said = client.refused(ask, 400, "InvalidBucketName");
    assert!(said.contains("3 to 63"), "{said}");
    // Other names are of nobody; addresses and this machine's own name always are the endpoint.
    for host in ["s3.example.test.evil.test", "example.test", "other.lan"] {
        let said = client.refused(on("GET", host, "/vlogs/2024"), 400, "InvalidRequest");
        assert!(said.contains("s3-domain"), "{said}");
    }
    for host in ["s3.example.test", "localhost:9000", "127.0.0.1"] {
        client.good(on("GET", host, "/vlogs/2024"));
    }
    drop(running);
}

#[test]
fn a_form_is_posted_to_the_host_of_its_bucket() {
    let (_running, mut client) = running(&["s3.example.test"]);
    let form = Form::within("vdata", "in/k", b"x").field("success_action_status", "201");
    let host = "vdata.s3.example.test";
    let reply = client.good(form.clone().at("/").ask().header("host", host));
    let address = format!("http://{host}/in/k");
    assert_eq!(reply.element("Location"), Some(address));
    assert_eq!(client.object("/vdata/in/k").unwrap(), b"x");
    client.refused(form.ask().header("host", host), 405, "MethodNotAllowed");
}
