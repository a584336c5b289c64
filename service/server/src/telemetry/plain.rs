//! The text form of Prometheus, made from that of OpenMetrics.
//!
//! A counter is named there as its samples are, with `_total`, and an info is a gauge; there are no
//! units, no exemplars, and no mark at the end.

/// `openmetrics` as text of version 0.0.4.
pub(super) fn plain(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut push = |parts: [&str; 4]| {
        text.extend(parts);
        text.push('\n');
    };
    // Its name follows from the type, which stands in the line behind.
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
        } else if let Some((name, kind)) = type_of(line) {
            let (end, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                push(["# HELP ", name, end, &format!(" {help}")]);
            }
            push(["# TYPE ", name, end, &format!(" {kind}")]);
        } else if !line.starts_with('#') {
            push([without_exemplar(line), "", "", ""]);
        }
    }
    text
}

fn type_of(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("# TYPE ")?.split_once(' ')
}

/// A sample, which ends before its exemplar. The value of a label may hold anything.
fn without_exemplar(sample: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in sample.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'#' if !quoted => return sample[..at].trim_end(),
            _ => {}
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_types_are_those_of_prometheus() {
        let openmetrics = "# HELP a_seconds Time.\n# TYPE a_seconds histogram\n\
            # UNIT a_seconds seconds\na_seconds_sum{s=\"x \\\" # {\"} 1.5\n\
            a_seconds_bucket{le=\"0.1\"} 1 # {trace_id=\"0af7\"} 0.05 1.2\n\
            # HELP b Count.\n# TYPE b counter\nb_total{s=\"\\\\\"} 3 # {t=\"x\"} 1\n\
            # HELP c What.\n# TYPE c info\nc_info{v=\"1\"} 1\n# HELP d Now.\n# TYPE d gauge\nd 2\n\
            # EOF\n";
        let wanted = "# HELP a_seconds Time.\n# TYPE a_seconds histogram\n\
            a_seconds_sum{s=\"x \\\" # {\"} 1.5\na_seconds_bucket{le=\"0.1\"} 1\n\
            # HELP b_total Count.\n# TYPE b_total counter\nb_total{s=\"\\\\\"} 3\n\
            # HELP c_info What.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n# HELP d Now.\n\
            # TYPE d gauge\nd 2\n";
        assert_eq!(plain(openmetrics), wanted);
    }
}
