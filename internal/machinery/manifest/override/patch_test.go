package override

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

// What patches do to a document that shares what it does not change is what they do to a text, by the library that knows nothing of that.
func TestPatchesLikeTheLibrary(t *testing.T) {
	t.Parallel()
	const rounds = 20_000
	random := rand.New(rand.NewPCG(1, 2))
	applied := 0
	for range rounds {
		before := encode(t, object(random, 3))
		operations := encode(t, randomOperations(random))
		merge := encode(t, object(random, 2))
		want, wantErr := byLibrary(t, before, operations, merge)
		shared, err := read(before)
		if err != nil {
			t.Fatal(err)
		}
		got, gotErr := byDocument(t, shared, operations, merge)
		if (wantErr == nil) != (gotErr == nil) || wantErr == nil && !sameJSON(t, want, got) {
			t.Fatalf("%s\n%s\nmerge %s\ngot  %s, %v\nwant %s, %v", before, operations, merge, got, gotErr, want, wantErr)
		}
		if size, _ := shared.size(); string(shared.appendTo(nil)) != string(before) || size != len(before) {
			t.Fatalf("%s\n%s\nthe document that others share has become %s", before, operations, shared.appendTo(nil))
		}
		if wantErr == nil {
			applied++
		}
	}
	if applied < rounds/20 {
		t.Errorf("only %d of the patches apply", applied)
	}
}

func byLibrary(t *testing.T, text, operations, merge []byte) ([]byte, error) {
	t.Helper()
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := patch.Apply(text)
	if err != nil {
		return nil, err
	}
	return jsonpatch.MergePatch(patched, merge)
}

func byDocument(t *testing.T, shared value, operations, merge []byte) ([]byte, error) {
	t.Helper()
	parsed, err := operationsOf(operations)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := read(merge)
	if err != nil {
		t.Fatal(err)
	}
	d := &document{root: shared, owner: &owner{}, allowed: &allowance{steps: budget.NewMeter("", 1<<30), most: 1 << 30}}
	if err := d.patch(parsed); err != nil {
		return nil, err
	}
	if err := d.mergePatch(&patch); err != nil {
		return nil, err
	}
	size, _ := d.root.size()
	text := d.root.appendTo(nil)
	if len(text) != size {
		t.Fatalf("%s has %d bytes, and says it has %d", text, len(text), size)
	}
	return text, nil
}

var keys = []string{"a", "b", "c~/<", "0"}

func object(random *rand.Rand, depth int) map[string]any {
	o := map[string]any{}
	for range random.IntN(4) {
		o[keys[random.IntN(len(keys))]] = anything(random, depth)
	}
	return o
}

func anything(random *rand.Rand, depth int) any {
	kind := random.IntN(6)
	switch {
	case kind < 2 && depth > 0:
		return object(random, depth-1)
	case kind < 4 && depth > 0:
		list := []any{}
		for range random.IntN(4) {
			list = append(list, anything(random, depth-1))
		}
		return list
	case kind == 4:
		return random.IntN(3)
	default:
		return []any{"a", "<\"ü\n", true, 0.5}[random.IntN(4)]
	}
}

func randomOperations(random *rand.Rand) (all []map[string]any) {
	kinds := []string{"add", "add", "add", "replace", "remove", "move", "copy", "copy", "test"}
	for range 1 + random.IntN(3) {
		o := map[string]any{"op": kinds[random.IntN(len(kinds))], "path": randomPath(random)}
		switch o["op"] {
		case "move", "copy":
			o["from"] = randomPath(random)
		default:
			o["value"] = anything(random, 1)
		}
		all = append(all, o)
	}
	return all
}

func randomPath(random *rand.Rand) (path string) {
	for range 1 + random.IntN(2) {
		path += "/" + []string{"a", "b", "c~0~1<", "0", "1", "-", "-1"}[random.IntN(7)]
	}
	return path
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	for text, into := range map[string]*any{string(a): &x, string(b): &y} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", text, err))
		}
	}
	return string(a) == string(b) || reflect.DeepEqual(x, y)
}
