//! What the fields of a head say about the type of the body.

use super::{ContentType, decode};

#[test]
fn content_type_is_read_by_its_grammar() {
    for (fields, expected) in [
        ("", ContentType::None),
        ("Content-Type:\r\n", ContentType::None),
        ("Content-Type: text/event-stream\r\n", ContentType::EventStream),
        ("content-type:TEXT/Event-Stream ; charset=utf-8\r\n", ContentType::EventStream),
        ("Content-Type: text/event-stream;x=\"a;b,c\"\r\n", ContentType::EventStream),
        ("Content-Type: text/event-stream\r\n ;charset=utf-8\r\n", ContentType::EventStream),
        ("Content-Type: application/json\r\n", ContentType::Json),
        ("CONTENT-TYPE: application/JSON;charset=utf-8\r\n", ContentType::Json),
        ("Content-Type: application/problem+json\r\n", ContentType::Json),
        ("Content-Type: text/json\r\n", ContentType::Json),
        ("Content-Type: application/x-ndjson\r\n", ContentType::Other),
        ("Content-Type: +json\r\n", ContentType::Other),
        ("Content-Type: text/html\r\n", ContentType::Other),
        ("Content-Type: text/html; q=application/json\r\n", ContentType::Other),
        ("Content-Type: text/event-streams\r\n", ContentType::Other),
        ("Content-Type: text/html\r\nContent-Type: text/json\r\n", ContentType::Json),
        ("X-Content-Type: text/json\r\n", ContentType::None),
    ] {
        let wire = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n");
        for cut in 0..=wire.len() {
            let head = decode(wire.as_bytes(), false, [cut]).head.expect("a head");
            assert_eq!(head.content_type, expected, "{fields:?} at {cut}");
        }
    }
}
