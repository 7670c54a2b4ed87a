//! The conversions of bson to types of other crates, each by its feature.

#[cfg(any(feature = "chrono-0_4", feature = "jiff-0_2", feature = "time-0_3"))]
const MILLIS: i64 = 1_800_000_000_123;

#[cfg(feature = "chrono-0_4")]
#[test]
fn a_time_is_one_of_chrono() {
    let time = sdam::DateTime::from_millis(MILLIS);
    assert_eq!(time.to_chrono().timestamp_millis(), MILLIS);
    assert_eq!(sdam::DateTime::from_chrono(time.to_chrono()), time);
}

#[cfg(feature = "jiff-0_2")]
#[test]
fn a_time_is_one_of_jiff() {
    let time = sdam::DateTime::from_millis(MILLIS);
    assert_eq!(time.to_jiff().as_millisecond(), MILLIS);
    assert_eq!(sdam::DateTime::from_jiff(time.to_jiff()), time);
}

#[cfg(feature = "serde_json-1")]
#[test]
fn a_value_is_one_of_serde_json() {
    let value = sdam::Bson::try_from(serde_json::json!({ "a": [1, "b"] })).unwrap();
    assert_eq!(value, sdam::doc! { "a": [1, "b"] }.into());
    assert_eq!(value.into_relaxed_extjson(), serde_json::json!({ "a": [1, "b"] }));
}

#[cfg(feature = "time-0_3")]
#[test]
fn a_time_is_one_of_time() {
    let time = sdam::DateTime::from_millis(MILLIS);
    assert_eq!(time.to_time_0_3().unix_timestamp(), MILLIS / 1000);
    assert_eq!(sdam::DateTime::from_time_0_3(time.to_time_0_3()), time);
}

#[cfg(feature = "uuid-1")]
#[test]
fn a_uuid_is_one_of_uuid() {
    let uuid = sdam::Uuid::from_bytes([7; 16]);
    assert_eq!(uuid.to_uuid_1().as_bytes(), &[7; 16]);
    assert_eq!(sdam::Uuid::from_uuid_1(uuid.to_uuid_1()), uuid);
}
