//! Tokens: each right for each method, stores, and what needs none.

use lumpscope_proto::REQUEST_ID_KEY;
use lumpscope_proto::v1;
use lumpscope_proto::v1::admin_client::AdminClient;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_proto::v1::observe_client::ObserveClient;
use lumpscope_server::door::Right;
use lumpscope_server::request::methods::METHODS;
use tonic::client::{Grpc, GrpcService};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};

use super::harness::{Serving, lumps, place, token, tokens, with_token};
use crate::common::{self, body, get, put, refused};

/// Sends an empty message, which every method can parse, and does not look at the reply.
#[derive(Default)]
struct Nothing;

impl Codec for Nothing {
    type Encode = ();
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Nothing {
    type Item = ();
    type Error = Status;

    fn encode(&mut self, (): (), _: &mut EncodeBuf<'_>) -> Result<(), Status> {
        Ok(())
    }
}

impl Decoder for Nothing {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        use bytes::Buf as _;
        bytes.advance(bytes.remaining());
        Ok(Some(()))
    }
}

/// Calls a method by its path; the first thing that comes decides.
async fn call<S>(channel: S, path: &'static str) -> Result<(), Status>
where
    S: GrpcService<tonic::body::Body>,
    S::Error: Into<tonic::codegen::StdError>,
    S::ResponseBody: tonic::codegen::Body<Data = bytes::Bytes> + Send + 'static,
    <S::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
    let mut grpc = Grpc::new(channel);
    let ready = grpc.ready().await;
    ready.map_err(|_| Status::unavailable("not ready"))?;
    let path = http::uri::PathAndQuery::from_static(path);
    let reply = grpc
        .server_streaming(Request::new(()), path, Nothing)
        .await?;
    reply.into_inner().message().await.map(|_| ())
}

const SECRETS: [&str; 4] = ["t-read", "t-write", "t-admin", "t-observe"];

#[tokio::test]
async fn each_scope_opens_exactly_its_methods() {
    let (folder, mut config) = place();
    // Some methods wait for what an empty request asks of them.
    config.drain_timeout = std::time::Duration::from_secs(1);
    let entries: Vec<String> = std::iter::zip(Right::ALL, SECRETS)
        .map(|(right, secret)| {
            let name = right.name();
            token(name, secret, &format!("scopes = [{name:?}]"))
        })
        .collect();
    config.tokens = Some(tokens(folder.path(), &entries));
    let service = Serving::start(config).await;
    let channel = service.plain().await;
    for method in METHODS {
        for (right, secret) in std::iter::zip(Right::ALL, SECRETS) {
            let asked = call(with_token(channel.clone(), secret), method.path).await;
            let code = asked.as_ref().err().map(Status::code);
            let login = [Some(Code::PermissionDenied), Some(Code::Unauthenticated)];
            if right == method.right {
                assert!(!login.contains(&code), "{}: {asked:?}", method.path);
            } else {
                let words = [method.path, right.name(), method.right.name()];
                refused(asked, Code::PermissionDenied, &words);
            }
        }
        let asked = call(channel.clone(), method.path).await;
        refused(asked, Code::Unauthenticated, &["authorization: Bearer"]);
        let asked = call(with_token(channel.clone(), "t-guess"), method.path).await;
        let status = asked.as_ref().unwrap_err();
        assert!(!status.message().contains("t-guess"), "{status:?}");
        refused(
            asked,
            Code::Unauthenticated,
            &["not one this service knows"],
        );
    }
    service.stop().await;
}

#[tokio::test]
async fn health_is_open_and_reflection_is_for_who_is_known() {
    let (folder, mut config) = place();
    let reader = token("reader", "abc", "scopes = [\"read\"]");
    config.tokens = Some(tokens(folder.path(), &[reader]));
    let service = Serving::start(config).await;
    let channel = service.plain().await;
    call(channel.clone(), "/grpc.health.v1.Health/Check")
        .await
        .unwrap();
    let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let asked = call(channel.clone(), reflection).await;
    refused(asked, Code::Unauthenticated, &["token"]);
    let asked = call(with_token(channel.clone(), "abc"), reflection).await;
    let code = asked.err().map(|status| status.code());
    assert!(![Some(Code::Unauthenticated), Some(Code::PermissionDenied)].contains(&code));
    // What does not exist says so only to who is known.
    let nothing = "/lumpscope.v1.LumpStore/Nothing";
    let asked = call(channel.clone(), nothing).await;
    refused(asked, Code::Unauthenticated, &["token"]);
    let asked = call(with_token(channel, "abc"), nothing).await;
    assert_eq!(asked.unwrap_err().code(), Code::Unimplemented);
    service.stop().await;
}

#[tokio::test]
async fn only_one_well_formed_token_counts() {
    let (folder, mut config) = place();
    let reader = token("reader", "abc", "scopes = [\"read\"]");
    config.tokens = Some(tokens(folder.path(), &[reader]));
    let service = Serving::start(config).await;
    let mut client = LumpStoreClient::new(service.plain().await);
    for (values, code) in [
        (&["bearer abc"][..], None),
        (&["Bearer abc", "Bearer abc"], Some(Code::Unauthenticated)),
        (&["Basic abc"], Some(Code::Unauthenticated)),
        (&["Bearer "], Some(Code::Unauthenticated)),
        (&["Bearer ABC"], Some(Code::Unauthenticated)),
    ] {
        let mut request = Request::new(v1::ListStoresRequest {});
        for value in values {
            let value = value.parse().unwrap();
            request.metadata_mut().append("authorization", value);
        }
        let asked = client.list_stores(request).await;
        assert_eq!(asked.err().map(|status| status.code()), code, "{values:?}");
    }
    service.stop().await;
}

#[tokio::test]
async fn a_token_may_be_for_some_stores_only() {
    let folder = common::folder();
    let one = common::store_file(folder.path(), "one", 16 << 20, 4096, 0.05);
    let two = common::store_file(folder.path(), "two", 16 << 20, 4096, 0.05);
    let mut config = common::config(&[("one", &one), ("two", &two)]);
    let all = "scopes = [\"read\", \"write\", \"admin\", \"observe\"]";
    let entries = [
        token("all", "a", all),
        token("some", "s", &format!("{all}\nstores = [\"one\"]")),
    ];
    config.tokens = Some(tokens(folder.path(), &entries));
    let service = Serving::start(config).await;
    let channel = service.plain().await;
    let mut client = lumps(channel.clone(), "a");
    for store in ["one", "two"] {
        let request = Request::new(tokio_stream::iter([
            common::first(common::header(store, 1, 3)),
            common::chunk("abc"),
        ]));
        client.put(request).await.unwrap();
    }
    let mut client = lumps(channel.clone(), "s");
    let head = |store: &str| v1::HeadRequest {
        store: store.to_owned(),
        id: common::raw_id(1),
        ..Default::default()
    };
    client.head(head("one")).await.unwrap();
    // The same words for a store that exists and for one that does not.
    for store in ["two", "three"] {
        let asked = client.head(head(store)).await;
        refused(asked, Code::PermissionDenied, &["\"some\"", store]);
    }
    let listed = client.list_stores(v1::ListStoresRequest {}).await.unwrap();
    let names: Vec<String> = listed
        .into_inner()
        .stores
        .into_iter()
        .map(|s| s.name)
        .collect();
    assert_eq!(names, ["one"]);
    let mut observe = ObserveClient::new(with_token(channel.clone(), "s"));
    let report = observe.report(v1::ReportRequest::default()).await.unwrap();
    let reported = report.into_inner().stores;
    assert!(reported.iter().all(|report| report.store == "one"));
    let store = "two".to_owned();
    let asked = observe
        .report(v1::ReportRequest {
            store,
            without_heat: true,
        })
        .await;
    refused(asked, Code::PermissionDenied, &["two"]);
    admin_of_some_stores(AdminClient::new(with_token(channel, "s"))).await;
    service.stop().await;
}

/// The administration of one store, and nothing of the others or of the whole.
async fn admin_of_some_stores(mut admin: AdminClient<super::harness::Known>) {
    let store = |name: &str| name.to_owned();
    let sync = |name| v1::SyncRequest { store: store(name) };
    admin.sync(sync("one")).await.unwrap();
    let result = admin.sync(sync("two")).await;
    refused(result, Code::PermissionDenied, &["two"]);
    let describe = v1::DescribeStoreRequest {
        store: store("two"),
    };
    let result = admin.describe_store(describe).await;
    refused(result, Code::PermissionDenied, &["two"]);
    let remove = v1::RemoveStoreRequest {
        store: store("two"),
        ..Default::default()
    };
    let result = admin.remove_store(remove).await;
    refused(result, Code::PermissionDenied, &["two"]);
    let whole = ["whole service"];
    let drain = v1::DrainRequest::default();
    refused(admin.drain(drain).await, Code::PermissionDenied, &whole);
    let resume = v1::ResumeRequest::default();
    refused(admin.resume(resume).await, Code::PermissionDenied, &whole);
    let add = v1::AddStoreRequest {
        name: store("one"),
        path: store("/x"),
        ..Default::default()
    };
    refused(admin.add_store(add).await, Code::PermissionDenied, &whole);
    let result = admin.reload(v1::ReloadRequest {}).await;
    refused(result, Code::PermissionDenied, &whole);
    let service = admin.describe_service(v1::DescribeServiceRequest {}).await;
    refused(service, Code::PermissionDenied, &whole);
}

#[tokio::test]
async fn without_a_file_of_tokens_none_is_asked_for() {
    let (_folder, config) = place();
    let service = Serving::start(config).await;
    let mut client = LumpStoreClient::new(service.plain().await);
    put(&mut client, "s", 1, &body(1, 10)).await.unwrap();
    get(&mut client, "s", 1).await.unwrap();
    let mut sent = Request::new(v1::ListStoresRequest {});
    let value = "Bearer anything".parse().unwrap();
    sent.metadata_mut().insert("authorization", value);
    let reply = client.list_stores(sent).await.unwrap();
    assert!(reply.metadata().contains_key(REQUEST_ID_KEY));
    service.stop().await;
}
