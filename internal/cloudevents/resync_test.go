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

// CE-06: the hash of a status is the SHA-256 of its JSON, whatever the order of its fields.
func TestHashStatus(t *testing.T) {
	t.Parallel()
	type one struct {
		A string `json:"a"`
		B string `json:"b"`
	}
	type other struct {
		B string `json:"b"`
		A string `json:"a"`
	}
	for _, test := range []struct {
		status any
		want   string
	}{
		// printf '{}' | sha256sum
		{&struct{}{}, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
		// printf '{"a":"1","b":"2"}' | sha256sum
		{&one{A: "1", B: "2"}, "21f76dfbfe6dfe21f762080ef484112cf2952974cef30741fd1931e1c6d92112"},
		{&other{A: "1", B: "2"}, "21f76dfbfe6dfe21f762080ef484112cf2952974cef30741fd1931e1c6d92112"},
	} {
		if got, err := HashStatus(test.status); err != nil || got != test.want {
			t.Errorf("%+v: got %s, %v; want %s", test.status, got, err, test.want)
		}
	}
}
