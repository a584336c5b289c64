//! Which requests are exported.

use std::time::Duration;

use tonic::Code;

use crate::config::{Sampling, TRACE_AUTO};

impl Sampling {
    /// True: such a request is exported. Those that failed by the service's fault always are.
    pub(super) fn wants(
        &self,
        trace_id: u128,
        (took, has_arm): (Duration, bool),
        code: Code,
    ) -> bool {
        let slow = took >= self.slower_than.of(TRACE_AUTO, has_arm);
        slow || is_fault(code) || self.by_chance(trace_id)
    }

    /// The rule of OpenTelemetry's `TraceIdRatioBased`: the lower half of the id, without its last
    /// bit, is a number that is equally often everywhere.
    fn by_chance(&self, trace_id: u128) -> bool {
        let lower = u64::try_from(trace_id & u128::from(u64::MAX)).unwrap_or(u64::MAX) >> 1;
        // 53 bits are all that a ratio can tell apart.
        let lower = u32::try_from(lower >> 31).unwrap_or(u32::MAX);
        f64::from(lower) < self.ratio * f64::from(u32::MAX) || self.ratio >= 1.0
    }
}

/// The codes that the semantic conventions of gRPC count as errors of a server.
pub(super) fn is_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SlowerThan;

    #[test]
    fn slow_ones_and_faults_are_always_kept_and_others_by_the_ratio() {
        let none = Sampling {
            ratio: 0.0,
            slower_than: SlowerThan::Auto,
        };
        let with_arm = |ms| (Duration::from_millis(ms), true);
        let (fast, slow) = (with_arm(99), with_arm(100));
        assert!(!none.wants(0, fast, Code::Ok));
        assert!(!none.wants(0, fast, Code::NotFound));
        assert!(none.wants(u128::MAX, slow, Code::Ok));
        assert!(none.wants(u128::MAX, (fast.0, false), Code::Ok));
        let given = Sampling {
            slower_than: "100ms".parse().unwrap(),
            ..none
        };
        assert!(!given.wants(0, (fast.0, false), Code::Ok));
        assert!(none.wants(u128::MAX, fast, Code::DataLoss));
        let all = Sampling { ratio: 1.0, ..none };
        assert!(all.wants(u128::MAX, fast, Code::Ok));
        let tenth = Sampling { ratio: 0.1, ..none };
        let ids = (0..10_000_u128).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) << 3);
        let kept = ids.filter(|id| tenth.wants(*id, fast, Code::Ok)).count();
        assert!((900..1100).contains(&kept), "{kept} of 10000");
    }
}
