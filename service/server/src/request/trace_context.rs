//! The W3C trace context of a call: <https://www.w3.org/TR/trace-context/>.

use http::HeaderMap;
use opentelemetry::trace::TraceState;

/// Most bytes of a `tracestate` that is passed on, as the standard wants it at least.
const MAX_STATE: usize = 512;

/// Where the client's call stands in a trace that the client has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// 32 lower-case hexadecimal digits.
    text: [u8; 32],
    trace_id: u128,
    span_id: u64,
    flags: u8,
    state: TraceState,
}

impl TraceParent {
    /// Trace context of a call; `None`: absent, or not as in the standard.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all("traceparent").iter();
        let first = given.next()?;
        // Of two, nobody knows which one is meant.
        let mut parent = given.next().is_none().then(|| parse(first.as_bytes()))??;
        parent.state = state(headers);
        Some(parent)
    }

    /// Id of the trace, as 32 lower-case hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Id of the trace; never 0.
    #[must_use]
    pub fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// Id of the client's span; never 0.
    #[must_use]
    pub fn span_id(&self) -> u64 {
        self.span_id
    }

    /// True: the client records this trace.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// Entries of other systems.
    #[must_use]
    pub fn state(&self) -> &TraceState {
        &self.state
    }
}

/// All `tracestate` together; one that is too long or malformed is none.
fn state(headers: &HeaderMap) -> TraceState {
    let given = headers.get_all("tracestate").iter();
    let texts: Vec<&str> = given.filter_map(|value| value.to_str().ok()).collect();
    let whole = texts.join(",");
    if whole.is_empty() || whole.len() > MAX_STATE {
        return TraceState::NONE;
    }
    whole.parse().unwrap_or(TraceState::NONE)
}

/// `VERSION-TRACE-PARENT-FLAGS`, of which later versions may have more.
fn parse(text: &[u8]) -> Option<TraceParent> {
    let (known, rest) = text.split_at_checked(55)?;
    let hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let (version, trace, parent, flags) =
        (&known[..2], &known[3..35], &known[36..52], &known[53..]);
    let dashes = [2, 35, 52].iter().all(|&at| known[at] == b'-');
    let good = dashes && [version, trace, parent, flags].into_iter().all(hex);
    let ends = match version {
        b"00" => rest.is_empty(),
        b"ff" => false,
        _ => rest.is_empty() || rest[0] == b'-',
    };
    if !good || !ends {
        return None;
    }
    let digits = |part| std::str::from_utf8(part).ok();
    let (trace_id, span_id) = (
        u128::from_str_radix(digits(trace)?, 16).ok()?,
        u64::from_str_radix(digits(parent)?, 16).ok()?,
    );
    if trace_id == 0 || span_id == 0 {
        return None;
    }
    Some(TraceParent {
        text: trace.try_into().ok()?,
        trace_id,
        span_id,
        flags: u8::from_str_radix(digits(flags)?, 16).ok()?,
        state: TraceState::NONE,
    })
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
        let parent = TraceParent::of(&headers).unwrap();
        assert_eq!(parent.as_str(), id);
        assert_eq!(format!("{:032x}", parent.trace_id()), id);
        assert_eq!(parent.span_id(), 0xb7ad_6b71_6920_3331);
        assert!(parent.is_sampled());
        assert_eq!(parent.state(), &TraceState::NONE);
        headers.append("traceparent", good.parse().unwrap());
        assert_eq!(TraceParent::of(&headers), None);
    }

    #[test]
    fn the_state_of_others_is_passed_on_unless_it_is_too_long() {
        let mut headers = HeaderMap::new();
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        headers.append("traceparent", parent.parse().unwrap());
        headers.append("tracestate", "a=1".parse().unwrap());
        headers.append("tracestate", "b=2".parse().unwrap());
        let parent = TraceParent::of(&headers).unwrap();
        assert!(!parent.is_sampled());
        assert_eq!(parent.state().header(), "a=1,b=2");
        let long = format!("c={}", "x".repeat(MAX_STATE));
        headers.append("tracestate", long.parse().unwrap());
        let parent = TraceParent::of(&headers).unwrap();
        assert_eq!(parent.state(), &TraceState::NONE);
    }
}
