package cloudevents

import (
	"testing"
	"time"
)

// CE-05, CE-06: requests for a resync list what the sender has, under the names of the protocol.
func TestResyncData(t *testing.T) {
	t.Parallel()
	event := New("c1", Type{ManifestBundles, Spec, Resync}, time.Now())
	for want, value := range map[string]any{
		`{"resourceVersions":[{"resourceID":"a","resourceVersion":7}]}`: ResourceVersions{[]ResourceVersion{{"a", 7}}},
		`{"statusHashes":[{"resourceID":"a","statusHash":"h"}]}`:        StatusHashes{[]StatusHash{{"a", "h"}}},
	} {
		if err := event.SetData(value); err != nil || string(event.Data) != want {
			t.Errorf("data is %s, %v; want %s", event.Data, err, want)
		}
	}
	hashes := StatusHashes{}
	if err := event.SetData(StatusHashes{[]StatusHash{{"a", "h"}}}); err != nil {
		t.Fatal(err)
	}
	if err := event.ReadData(&hashes); err != nil || len(hashes.Hashes) != 1 || hashes.Hashes[0].StatusHash != "h" {
		t.Errorf("read %v, %v", hashes, err)
	}
	event.Data = []byte("nothing")
	if err := event.ReadData(&hashes); err == nil {
		t.Error("what is no JSON is read")
	}
}

// CE-06: the hash of a status is the SHA-256 of its JSON.
func TestHashStatus(t *testing.T) {
	t.Parallel()
	// printf '{}' | sha256sum
	const want = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	if got, err := HashStatus(struct{}{}); err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}
