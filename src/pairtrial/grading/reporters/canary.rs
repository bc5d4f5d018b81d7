#[cfg(test)]
mod $module {
    extern crate std as $std;
    use self::$std::string::ToString;

    #[test]
    fn $good() {
        let out = match $std::fs::read_link("/proc/self/fd/1") {
            Ok(place) => place.to_string_lossy().to_string(),
            Err(_) => "-".to_string(),
        };
        let here = $std::process::id().to_string() + " " + out.as_str();
        assert_eq!($std::env::var("$variable").unwrap_or_default(), here, "not the process that was started");
    }

    #[test]
    fn $bad() {
        panic!("must fail");
    }
}
