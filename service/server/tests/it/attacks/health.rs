//! Must not achieve: to learn without a login which stores there are.

use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::door::harness::{Serving, place, token, tokens, with_token};

fn asked(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

#[tokio::test]
async fn names_of_stores_that_are_guessed() {
    let (folder, mut config) = place();
    let entries = [
        token("all", "a", "scopes = [\"read\"]"),
        token("other", "o", "scopes = [\"read\"]\nstores = [\"t\"]"),
    ];
    config.tokens = Some(tokens(folder.path(), &entries));
    let service = Serving::start(config).await;
    let channel = service.plain().await;
    let mut stranger = HealthClient::new(channel.clone());
    let mut other = HealthClient::new(with_token(channel.clone(), "o"));
    let mut told = Vec::new();
    for name in ["store/s", "store/none"] {
        told.push(stranger.check(asked(name)).await.unwrap_err());
        told.push(stranger.watch(asked(name)).await.unwrap_err());
        told.push(other.check(asked(name)).await.unwrap_err());
    }
    for status in told {
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(status.message(), "service not registered");
    }
    stranger.check(asked("")).await.unwrap();
    let mut known = HealthClient::new(with_token(channel, "a"));
    known.check(asked("store/s")).await.unwrap();
    drop((stranger, other, known));
    service.stop().await;
}
