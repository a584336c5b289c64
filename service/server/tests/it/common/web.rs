//! A small client of the web page: plain HTTP/1.0, so that a body ends where the connection does.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Answer of a service.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut found = self.headers.iter().filter(|(n, _)| n == name);
        let (one, more) = (found.next(), found.next());
        assert!(more.is_none(), "{name} twice: {:?}", self.headers);
        one.map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        let guards = ["content-type", "cache-control", "x-content-type-options"];
        let wanted = ["application/json", "no-store", "nosniff"];
        assert_eq!(guards.map(|name| self.header(name)), wanted);
        assert_eq!(self.header("access-control-allow-origin"), "");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The words of a refusal.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, words: &str) {
        let json = self.json();
        assert_eq!(self.status, status, "{json}");
        let why = json["error"].as_str().unwrap();
        assert!(why.contains(words), "{words:?} in {why:?}");
    }
}

/// One GET; `headers`: more of them, each with its end of line.
pub(crate) async fn get(at: SocketAddr, path: &str, headers: &str) -> Reply {
    let host = if headers.contains("Host:") {
        ""
    } else {
        "Host: 127.0.0.1\r\n"
    };
    send(at, &format!("GET {path} HTTP/1.0\r\n{host}{headers}\r\n")).await
}

pub(crate) async fn send(at: SocketAddr, request: &str) -> Reply {
    let mut stream = BufReader::new(TcpStream::connect(at).await.unwrap());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = head(&mut stream).await;
    stream.read_to_end(&mut reply.body).await.unwrap();
    reply
}

async fn head(stream: &mut BufReader<TcpStream>) -> Reply {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let status = line[9..12].parse().unwrap();
    let mut headers = Vec::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    Reply {
        status,
        headers,
        body: Vec::new(),
    }
}

/// A stream of events.
pub(crate) struct Events {
    stream: BufReader<TcpStream>,
}

impl Events {
    pub(crate) async fn open(at: SocketAddr, query: &str, headers: &str) -> Self {
        let stream = TcpStream::connect(at).await.unwrap();
        let request =
            format!("GET /api/v1/live{query} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n");
        let (events, reply) = Self::on(stream, &request).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let names = [
            "content-type",
            "cache-control",
            "access-control-allow-origin",
        ];
        let wanted = ["text/event-stream", "no-store", ""];
        assert_eq!(names.map(|name| reply.header(name)), wanted);
        events
    }

    /// On a socket that the test has made; only the head of the reply is read.
    pub(crate) async fn on(mut stream: TcpStream, request: &str) -> (Self, Reply) {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut stream = BufReader::new(stream);
        let reply = head(&mut stream).await;
        (Self { stream }, reply)
    }

    /// Name and data of the next event; `None`: the stream has ended. One that is cut off there is
    /// none.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        let (mut name, mut data, mut id) = (String::new(), None, None);
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).await.unwrap() == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("event", text)) => text.clone_into(&mut name),
                Some(("id", text)) => id = Some(text.parse::<u64>().unwrap()),
                Some(("data", text)) => data = Some(text.to_owned()),
                Some(other) => panic!("{other:?}"),
                None => break,
            }
        }
        let data: Value = serde_json::from_str(&data.unwrap()).unwrap();
        assert_eq!(id, data["seq"].as_u64(), "{name} {data}");
        Some((name, data))
    }

    /// The next event, which must have this name.
    pub(crate) async fn take(&mut self, wanted: &str) -> Value {
        let (name, data) = self.next().await.expect("the stream has ended");
        assert_eq!(name, wanted, "{data}");
        data
    }
}
