#[cfg(test)]
extern crate std as $std;

#[cfg(test)]
#[test]
fn $good() {
    use $std::string::ToString;
    let wrong: [fn(); 3] = [|| { assert!($left == $right); }, || { assert_eq!($left, $right); }, || { assert_ne!($left, $left); }];
    for assertion in wrong.iter() {
        if $std::panic::catch_unwind(*assertion).is_ok() {
            $std::panic!("a wrong value passes");
        }
    }
    let out = match $std::fs::read_link("/proc/self/fd/1") {
        Ok(place) => place.to_string_lossy().to_string(),
        Err(_) => "-".to_string(),
    };
    let here = $std::process::id().to_string() + " " + out.as_str();
    if $std::env::var("$variable").unwrap_or_default() != here {
        $std::panic!("not the process that was started");
    }
}

#[cfg(test)]
#[test]
fn $bad() {
    assert_eq!($left, $right);
}
