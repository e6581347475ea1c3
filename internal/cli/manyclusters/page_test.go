package manyclusters

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/clusterapi"
)

// CA-02: a list is read only as far as a server would make one: elements that are empty take much more memory than they have bytes.
func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	elements := func(n int) string { return strings.Repeat("{},", n-1) + "{}" }
	for list, form := range map[string]Form{"columnDefinitions": Tables, "rows": Tables, "items": Names} {
		q := Query{Form: form}
		body := `{"kind":"Table","` + list + `":[` + elements(clusterapi.MaxElements+1) + `]}`
		if _, _, err := decode("c1", Resource{}, q, []byte(body)); !clusterapi.IsTooLarge(err) {
			t.Errorf("more %s than are read: %v", list, err)
		}
		for _, few := range []string{"null", "[]", "[" + elements(3) + "]"} {
			if _, _, err := decode("c1", Resource{}, q, []byte(`{"kind":"Table","`+list+`":`+few+`}`)); err != nil {
				t.Errorf("%s: %s: %v", list, few, err)
			}
		}
		var kind *json.UnmarshalTypeError
		if _, _, err := decode("c1", Resource{}, q, []byte(`{"kind":"Table","`+list+`":{}}`)); !errors.As(err, &kind) {
			t.Errorf("no list as %s: %v", list, err)
		}
	}
}
