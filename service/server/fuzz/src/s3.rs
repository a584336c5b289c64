//! Bytes that strangers send to the endpoint of S3: what they say is signed, documents, forms.

use std::collections::BTreeSet;

use form_urlencoded as query;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use lumpscope_s3::fuzzing;

/// Most seconds that a presigned URL is good for.
const SEVEN_DAYS: u64 = 604_800;

/// The first line is a URI, each other one a header.
fn request(data: &[u8]) -> Option<Request<()>> {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut request = Request::builder().uri(lines.next()?).body(()).ok()?;
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        request.headers_mut().append(name, value);
    }
    Some(request)
}

/// The lists of signed headers that a request has, wherever they stand.
fn lists(headers: &HeaderMap, query: &[(String, String)]) -> Vec<String> {
    let by_url = query
        .iter()
        .filter(|(name, _)| name == "X-Amz-SignedHeaders");
    let mut lists: Vec<String> = by_url.map(|(_, list)| list.clone()).collect();
    for value in headers.get_all("authorization") {
        let text = String::from_utf8_lossy(value.as_bytes());
        let rest = text.split("SignedHeaders=").skip(1);
        lists.extend(rest.map(|rest| rest.split(',').next().unwrap_or(rest).trim().to_owned()));
    }
    lists
}

/// An accepted request that is signed is signed by version 4, with host and every header that is
/// obeyed, for seven days at most; and what is obeyed beside its headers stands in its signed URL.
pub(crate) fn signed(data: &[u8]) {
    let Some(request) = request(data) else {
        return;
    };
    let headers = request.headers().clone();
    let uri = request.uri().query().unwrap_or_default().to_owned();
    let Some(obeyed) = fuzzing::signed(request) else {
        return;
    };
    let query: Vec<(String, String)> = query::parse(uri.as_bytes()).into_owned().collect();
    let all = |wanted: &'static str| query.iter().filter(move |(name, _)| name == wanted);
    let old = all("AWSAccessKeyId").chain(all("Signature")).count();
    assert_eq!(old, 0, "version 2 in the URL: {query:?}");
    let logins: Vec<&[u8]> = headers
        .get_all("authorization")
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    let urls = all("X-Amz-Signature").count();
    if logins.is_empty() && urls == 0 {
        return assert_eq!(obeyed.headers(), &headers, "obeyed of a stranger's request");
    }
    assert_eq!(logins.len() + urls.min(1), 1, "signed twice: {headers:?}");
    let version_4 = |login: &[u8]| login.starts_with(b"AWS4-HMAC-SHA256 ");
    assert!(logins.iter().all(|login| version_4(login)), "{headers:?}");
    for (_, seconds) in all("X-Amz-Expires").filter(|_| urls > 0) {
        // A number that nobody can read is refused later.
        let seconds: u64 = seconds.parse().unwrap_or(0);
        assert!(seconds <= SEVEN_DAYS, "for {seconds} seconds");
    }
    let lists = lists(&headers, &query);
    let signed: BTreeSet<&str> = lists.iter().flat_map(|list| list.split(';')).collect();
    assert!(signed.contains("host"), "{signed:?}");
    let amz = |name: &&HeaderName| name.as_str().starts_with("x-amz-");
    for name in headers.keys().filter(amz) {
        assert!(signed.contains(name.as_str()), "{name} is not in {lists:?}");
    }
    for (name, value) in obeyed.headers().iter().filter(|(name, _)| amz(name)) {
        let sent = headers.get_all(name).iter().any(|sent| sent == value);
        let in_url = query.iter().any(|(given, text)| {
            given.eq_ignore_ascii_case(name.as_str()) && text.as_bytes() == value.as_bytes()
        });
        let of_date = name == "x-amz-date" && signed.contains("date");
        assert!(sent || in_url || of_date, "nobody sent {name}: {value:?}");
    }
}

/// A document that is read is read to the end: once more it is the same, with the same elements.
pub(crate) fn xml(data: &[u8]) {
    let elements = fuzzing::elements(data);
    let Some(plain) = fuzzing::plain(data) else {
        return;
    };
    let shown = String::from_utf8_lossy(&plain);
    let again = fuzzing::plain(&plain);
    assert_eq!(again.as_ref(), Some(&plain), "not plain: {shown}");
    assert_eq!(fuzzing::elements(&plain), elements, "{shown}");
}

/// The first byte says where the form is cut, and the rest of its line is the boundary: what the
/// part says is what the whole says, because a form is read again as its bytes come.
pub(crate) fn form(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else {
        return;
    };
    let Some(line) = data.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let (boundary, bytes) = (&data[..line], &data[line + 1..]);
    let Ok(boundary) = std::str::from_utf8(boundary) else {
        return;
    };
    if !(1..=70).contains(&boundary.len()) {
        return;
    }
    let whole = fuzzing::form(bytes, boundary);
    let part = &bytes[..usize::from(cut) * bytes.len() / 256];
    let part = fuzzing::form(part, boundary);
    if part != Some(None) {
        assert_eq!(part, whole, "another form once more of it has come");
    }
    let Some(Some(form)) = whole else {
        return;
    };
    assert!(form.begins <= bytes.len(), "{form:?}");
    assert!(!form.file.contains(['/', '\\']), "{form:?}");
    let names: BTreeSet<&str> = form.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.len(), form.fields.len(), "a field twice: {form:?}");
    let small = |name: &&str| !name.bytes().any(|byte| byte.is_ascii_uppercase());
    assert!(
        names.iter().all(small) && !names.contains("file"),
        "{form:?}"
    );
}
