package env

import "os"

// inherited are the variables of this process that the programs of tests get. Go takes a result of a test from its cache as long as the
// variables that the test has asked for are what they were: what programs get by no other way than this list cannot make them differ.
var inherited = []string{
	"PATH", "HOME", "TMPDIR", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CACHE_HOME",
	"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK",
}

// Environ is the environment of a program that a test starts: some variables of this process, and the given ones, as NAME=VALUE.
func Environ(variables ...string) []string {
	var environ []string
	for _, name := range inherited {
		if value, set := os.LookupEnv(name); set {
			environ = append(environ, name+"="+value)
		}
	}
	return append(environ, variables...)
}
