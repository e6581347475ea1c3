package access

import (
	"fmt"
	"strings"
)

// CheckPath refuses a path of a request that an API server or a proxy on the way could read as another one.
func CheckPath(path string) error {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return fmt.Errorf("the path %q has a segment %q; write the path that is meant", path, segment)
		}
	}
	if strings.ContainsAny(path, "\\\x00") {
		return fmt.Errorf("the path %q has a character that no path of an API has", path)
	}
	return nil
}
