//! The W3C trace context of a call: <https://www.w3.org/TR/trace-context/>.

use tonic::codegen::http::HeaderMap;

/// Id of a trace that the client has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId([u8; 32]);

impl TraceId {
    /// The trace a call belongs to; `None`: it says none, or not as the standard wants it.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all("traceparent").iter();
        let first = given.next()?;
        // Of two, nobody knows which one is meant.
        given.next().is_none().then(|| parse(first.as_bytes()))?
    }

    /// 32 lower-case hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// `VERSION-TRACE-PARENT-FLAGS`, of which later versions may have more.
fn parse(text: &[u8]) -> Option<TraceId> {
    let (known, rest) = text.split_at_checked(55)?;
    let hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let zero = |part: &[u8]| part.iter().all(|b| *b == b'0');
    let (version, trace, parent, flags) =
        (&known[..2], &known[3..35], &known[36..52], &known[53..]);
    let dashes = [2, 35, 52].iter().all(|&at| known[at] == b'-');
    let good = dashes && [version, trace, parent, flags].into_iter().all(hex);
    let ends = match version {
        b"00" => rest.is_empty(),
        b"ff" => false,
        _ => rest.is_empty() || rest[0] == b'-',
    };
    if !good || !ends || zero(trace) || zero(parent) {
        return None;
    }
    trace.try_into().ok().map(TraceId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_standard_allows_is_a_trace() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        let good = format!("00-{id}-b7ad6b7169203331-01");
        assert_eq!(parse(good.as_bytes()).unwrap().as_str(), id);
        assert!(parse(good.replacen("00", "01", 1).as_bytes()).is_some());
        assert!(parse(format!("cc{}-more", &good[2..]).as_bytes()).is_some());
        for bad in [
            String::new(),
            good[..54].to_owned(),
            format!("{good}-more"),
            format!("ff{}", &good[2..]),
            format!("cc{}more", &good[2..]),
            good.to_uppercase(),
            good.replace(id, &"0".repeat(32)),
            good.replace("b7ad6b7169203331", &"0".repeat(16)),
            good.replace('-', "_"),
            good.replacen('7', "g", 1),
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        let mut headers = HeaderMap::new();
        headers.append("traceparent", good.parse().unwrap());
        assert_eq!(TraceId::of(&headers).unwrap().as_str(), id);
        headers.append("traceparent", good.parse().unwrap());
        assert_eq!(TraceId::of(&headers), None);
    }
}
