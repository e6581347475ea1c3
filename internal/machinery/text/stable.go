package text

import "regexp"

// unstable is what differs though the same fails again: ports of this side, which of the addresses of a host was tried, the time, and
// streams of a connection.
var unstable = []struct {
	pattern *regexp.Regexp
	stable  string
}{
	{regexp.MustCompile(`\b((?:tcp|udp)[46]?) \S+:\d+: `), "$1: "},
	{regexp.MustCompile(`\blookup (\S+) on \S+:\d+: `), "lookup $1: "},
	{regexp.MustCompile(`\bcurrent time \S+ is `), "current time is "},
	{regexp.MustCompile(`\bstream ID \d+; `), ""},
	{regexp.MustCompile(`\bLastStreamID=\d+,? `), ""},
}

// Stable is the message of an error of the network as it goes to an object of the API: without what differs at each attempt, since
// writing that would have all who watch the object told of nothing new.
func Stable(message string) string {
	for _, part := range unstable {
		message = part.pattern.ReplaceAllString(message, part.stable)
	}
	return message
}
