package broker

import (
	"testing"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

// CE-05: what waits as a change is sent as the answer to a resync request once there is one, and a change does not take that back: of an
// earlier version than the agent knows, from a backup, only the answer counts.
func TestAnswerToResyncStays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		puts []cloudevents.Action
		want cloudevents.Action
	}{
		"a change":                  {[]cloudevents.Action{cloudevents.Update}, cloudevents.Update},
		"an answer after a change":  {[]cloudevents.Action{cloudevents.Update, cloudevents.ResyncResponse}, cloudevents.ResyncResponse},
		"a change after an answer":  {[]cloudevents.Action{cloudevents.ResyncResponse, cloudevents.Update}, cloudevents.ResyncResponse},
		"an answer after a new one": {[]cloudevents.Action{cloudevents.Create, cloudevents.ResyncResponse}, cloudevents.ResyncResponse},
		"a change after a new one":  {[]cloudevents.Action{cloudevents.Create, cloudevents.Update}, cloudevents.Create},
	} {
		q, ref := newQueue(), Ref{Namespace: "c1", Name: "w", UID: "u"}
		for _, action := range test.puts {
			if q.put(ref, action) != nil {
				t.Fatalf("%s: there is no room", name)
			}
		}
		if _, action, ok := q.take(); !ok || action != test.want {
			t.Errorf("%s: got %s, %t, want %s", name, action, ok, test.want)
		}
		if _, _, ok := q.take(); ok {
			t.Errorf("%s: it waits twice", name)
		}
	}
}
