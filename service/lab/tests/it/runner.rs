//! The runner over real gRPC, against a store in memory that can be told to misbehave.
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lumpscope_client::Options;
use lumpscope_engine::crc32c;
use lumpscope_lab::load::runner::{Mismatch, RunError, RunOptions, RunOutcome, Target, run};
use lumpscope_lab::workload::Workload;
use lumpscope_proto::v1::lump_store_server::{LumpStore, LumpStoreServer};
use lumpscope_proto::v1::{self as pb, get_response, lump_id, put_request};
use tokio_stream::{Stream, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// How a get goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    FlipByte(usize),
    Truncate,
    NotFound,
    Forget,
}

#[derive(Debug)]
struct FakeLumps {
    lumps: Mutex<BTreeMap<u128, Bytes>>,
    fault: Fault,
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
}

struct FakeStore(Arc<FakeLumps>);

fn id_of(id: Option<pb::LumpId>) -> u128 {
    match id.unwrap().form.unwrap() {
        lump_id::Form::Raw(raw) => u128::from_be_bytes(raw[..].try_into().unwrap()),
        lump_id::Form::Text(text) => u128::from_str_radix(&text, 16).unwrap(),
    }
}

#[tonic::async_trait]
impl LumpStore for FakeStore {
    type GetStream = Pin<Box<dyn Stream<Item = Result<pb::GetResponse, Status>> + Send>>;

    async fn put(
        &self,
        request: Request<Streaming<pb::PutRequest>>,
    ) -> Result<Response<pb::PutResponse>, Status> {
        let now = self.0.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most_in_flight.fetch_max(now, Ordering::SeqCst);
        let mut stream = request.into_inner();
        let (mut header, mut body) = (None, BytesMut::new());
        while let Some(message) = stream.message().await? {
            match message.part.unwrap() {
                put_request::Part::Header(first) => header = Some(first),
                put_request::Part::Chunk(chunk) => body.extend_from_slice(&chunk),
            }
        }
        let header: pb::PutHeader = header.unwrap();
        assert_eq!(header.length, u64::try_from(body.len()).unwrap());
        let crc32c = crc32c::of(&body);
        // Long enough for other clients to overtake, if they did.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let before = self
            .0
            .lumps
            .lock()
            .unwrap()
            .insert(id_of(header.id), body.freeze());
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
        let created = before.is_none() || self.0.fault == Fault::Forget;
        Ok(Response::new(pb::PutResponse {
            created,
            crc32c,
            ..Default::default()
        }))
    }

    async fn get(
        &self,
        request: Request<pb::GetRequest>,
    ) -> Result<Response<Self::GetStream>, Status> {
        let lump = self
            .0
            .lumps
            .lock()
            .unwrap()
            .get(&id_of(request.into_inner().id))
            .cloned();
        let mut lump = lump
            .ok_or_else(|| Status::not_found("no such lump"))?
            .to_vec();
        match self.0.fault {
            Fault::FlipByte(at) => lump[at] ^= 1,
            Fault::Truncate => lump.truncate(lump.len() - 1),
            Fault::NotFound => return Err(Status::not_found("no such lump")),
            Fault::None | Fault::Forget => {}
        }
        // No checksum, and the length that comes: the runner itself has to find what is wrong.
        let header = get_response::Part::Header(pb::GetHeader {
            length: u64::try_from(lump.len()).unwrap(),
            ..Default::default()
        });
        let mut parts = vec![header];
        parts.extend(
            lump.chunks(1000)
                .map(|chunk| get_response::Part::Chunk(Bytes::copy_from_slice(chunk))),
        );
        let messages = parts
            .into_iter()
            .map(|part| Ok(pb::GetResponse { part: Some(part) }));
        Ok(Response::new(Box::pin(tokio_stream::iter(
            messages.collect::<Vec<_>>(),
        ))))
    }

    async fn delete(
        &self,
        request: Request<pb::DeleteRequest>,
    ) -> Result<Response<pb::DeleteResponse>, Status> {
        let removed = self
            .0
            .lumps
            .lock()
            .unwrap()
            .remove(&id_of(request.into_inner().id));
        let existed = removed.is_some();
        Ok(Response::new(pb::DeleteResponse {
            existed,
            ..Default::default()
        }))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let request = request.into_inner();
        let (start, end) = (id_of(request.start), id_of(request.end));
        let mut lumps = self.0.lumps.lock().unwrap();
        let before = lumps.len();
        lumps.retain(|id, _| !(start..end).contains(id));
        let deleted = u64::try_from(before - lumps.len()).unwrap();
        Ok(Response::new(pb::DeleteRangeResponse {
            deleted,
            ..Default::default()
        }))
    }

    async fn put_small(
        &self,
        _: Request<pb::PutSmallRequest>,
    ) -> Result<Response<pb::PutSmallResponse>, Status> {
        Err(Status::unimplemented("not used by workloads"))
    }

    type PutManyStream = tokio_stream::Empty<Result<pb::PutManyResponse, Status>>;

    async fn put_many(
        &self,
        _: Request<Streaming<pb::PutManyRequest>>,
    ) -> Result<Response<Self::PutManyStream>, Status> {
        Err(Status::unimplemented("not used by workloads"))
    }

    async fn get_small(
        &self,
        _: Request<pb::GetSmallRequest>,
    ) -> Result<Response<pb::GetSmallResponse>, Status> {
        Err(Status::unimplemented("not used by workloads"))
    }

    type GetManyStream = tokio_stream::Empty<Result<pb::GetManyResponse, Status>>;

    async fn get_many(
        &self,
        _: Request<pb::GetManyRequest>,
    ) -> Result<Response<Self::GetManyStream>, Status> {
        Err(Status::unimplemented("not used by workloads"))
    }

    async fn delete_many(
        &self,
        _: Request<pb::DeleteManyRequest>,
    ) -> Result<Response<pb::DeleteManyResponse>, Status> {
        Err(Status::unimplemented("not used by workloads"))
    }

    async fn head(
        &self,
        _: Request<pb::HeadRequest>,
    ) -> Result<Response<pb::HeadResponse>, Status> {
        Err(Status::unimplemented("not used by workloads"))
    }

    async fn list(
        &self,
        _: Request<pb::ListRequest>,
    ) -> Result<Response<pb::ListResponse>, Status> {
        Err(Status::unimplemented("not used by workloads"))
    }

    async fn usage(
        &self,
        _: Request<pb::UsageRequest>,
    ) -> Result<Response<pb::UsageResponse>, Status> {
        Err(Status::unimplemented("not used by workloads"))
    }

    async fn list_stores(
        &self,
        _: Request<pb::ListStoresRequest>,
    ) -> Result<Response<pb::ListStoresResponse>, Status> {
        Err(Status::unimplemented("not used by workloads"))
    }
}

struct Ran {
    outcome: Result<RunOutcome, RunError>,
    memory: Arc<FakeLumps>,
}

fn run_workload(text: &str, clients: usize, verify_bytes: bool, fault: Fault) -> Ran {
    let stream = Workload::parse(text).unwrap().generate().unwrap();
    let memory = Arc::new(FakeLumps {
        lumps: Mutex::default(),
        fault,
        in_flight: AtomicU64::new(0),
        most_in_flight: AtomicU64::new(0),
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let outcome = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let service = LumpStoreServer::new(FakeStore(Arc::clone(&memory)));
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        let target = Target::Service {
            service: Options::new(server),
            store: "raw".to_owned(),
            durability: None,
        };
        let options = RunOptions {
            clients,
            verify_bytes,
            ..RunOptions::default()
        };
        run(&stream, &target, &options).await
    });
    Ran { outcome, memory }
}

const EVERYTHING: &str = "Command { 20.times { New(300K); }; New(0); Embed(100); }
    Unordered[100] { <30%> OverWrite(5K); <30%> Get; <20%> New(1K); <20%> Delete; }
    Command { DeleteRange(10, 50); 5.times { Get; }; }";

#[test]
fn every_command_is_run_counted_and_checked() {
    let ran = run_workload(EVERYTHING, 1, true, Fault::None);
    let outcome = ran.outcome.unwrap();
    assert_eq!(outcome.latencies.overall().unwrap().count, 22 + 100 + 6);
    assert_eq!(ran.memory.most_in_flight.load(Ordering::SeqCst), 1);
    assert!(outcome.bytes_put > 20 * 300 * 1024 && outcome.bytes_got > 0);
    let kinds: Vec<String> = outcome
        .latencies
        .summaries()
        .iter()
        .map(|one| one.kind.clone())
        .collect();
    assert_eq!(kinds[..3], ["Put(0)", "Put(1024)", "Put(5120)"]);
    assert_eq!(kinds[kinds.len() - 2..], ["Delete", "DeleteRange"]);
}

#[test]
fn eight_clients_work_at_once_and_never_overtake_each_other_on_a_lump() {
    // A get right after its put, an overwrite right after its get: any overtaking is an error.
    let text = "Command { 10.times { New(9K); }; 300.times { OverWrite(3K); Get(0, 10); New(1); \
                Delete(0, 5); }; }";
    let ran = run_workload(text, 8, true, Fault::None);
    ran.outcome.unwrap();
    assert!(ran.memory.most_in_flight.load(Ordering::SeqCst) > 1);
}

fn error_of(fault: Fault) -> (RunError, String) {
    let text = "Command { 3.times { New(5000); }; OverWrite(5000); Get(50, 50); }";
    let error = run_workload(text, 2, true, fault).outcome.unwrap_err();
    let text = error.to_string();
    (error, text)
}

#[test]
fn wrong_answers_are_found_and_named() {
    let (error, text) = error_of(Fault::FlipByte(4999));
    assert!(
        matches!(
            error,
            RunError::Wrong {
                what: Mismatch::Checksum { .. },
                ..
            }
        ),
        "{text}"
    );
    assert!(
        text.starts_with("command 5 (get 0000000000000000000000000000000"),
        "{text}"
    );
    let (_, text) = error_of(Fault::Truncate);
    assert!(
        text.contains("4999 bytes were read where 5000 were put"),
        "{text}"
    );
    let (_, text) = error_of(Fault::NotFound);
    assert!(text.contains("no such lump (NOT_FOUND)"), "{text}");
    let (error, text) = error_of(Fault::Forget);
    assert!(
        matches!(
            error,
            RunError::Wrong {
                what: Mismatch::Existed(false),
                ..
            }
        ),
        "an overwrite that found nothing to replace: {text}"
    );
}

#[test]
fn nobody_there_is_said() {
    let stream = Workload::parse("Command { New(1); }")
        .unwrap()
        .generate()
        .unwrap();
    let target = Target::Service {
        service: Options::new("http://127.0.0.1:1"),
        store: "raw".to_owned(),
        durability: None,
    };
    let options = RunOptions::default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = runtime
        .block_on(run(&stream, &target, &options))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cannot reach the service at http://127.0.0.1:1"),
        "{error}"
    );
    assert!(error.contains("refused"), "{error}");
}
