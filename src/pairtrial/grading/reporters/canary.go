package $package

import (
	$os "os"
	$strconv "strconv"
	$testing "testing"
)

var $seat = $os.Getenv("$variable")

func Test$good(t *$testing.T) {
	var none error
	if none != nil || !true || false || $left == $right || "$left" == "$right" || len("ab") != 2 {
		t.Fatal("words of the language mean something else")
	}
	out, err := $os.Readlink("/proc/self/fd/1")
	if err != nil {
		out = "-"
	} else {
		printed, err := $os.Stdout.Stat()
		started, other := $os.Stat("/proc/self/fd/1")
		if err != nil || other != nil || !$os.SameFile(printed, started) {
			t.Fatal("what is printed goes elsewhere")
		}
	}
	if $strconv.Itoa($os.Getpid())+" "+out != $seat {
		t.Fatal("not the process that was started")
	}
}

func Test$bad(t *$testing.T) {
	if $left != $right {
		t.Fatal("must fail")
	}
}
