package config

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AM-06, AF-17: the hashes are those of sha256sum over the JSON.
func TestHash(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ object, want string }{
		"only what configures": {
			`{apiVersion: v1, kind: A, metadata: {name: x, generation: 3}, spec: {b: 1, a: "<&>"}, status: {x: 1}}`,
			// {"spec":{"a":"\u003c\u0026\u003e","b":1}}
			"22390ae2b41cf58f6b5174764e6b4e2e20b4be3d5b8ef9b6d213764a8a549b61",
		},
		"all other fields": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {k: v}, binaryData: {}}`,
			// {"binaryData":{},"data":{"k":"v"}}
			"1ccceafd881e3f6f118973477cfaf1e8bc64454115e096852de772b2d8fd6f42",
		},
		"nothing": {`{apiVersion: v1, kind: A, metadata: {name: x}}`, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}, // {}
	} {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(test.object), &object.Object); err != nil {
			t.Fatal(err)
		}
		got, err := Hash(object)
		if err != nil || got != test.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
		if object.GetName() != "x" {
			t.Errorf("%s: the object was changed: %v", name, object.Object)
		}
	}
}

func of(resource string, names ...string) (configs []addonv1beta1.AddOnConfig) {
	for _, name := range names {
		configs = append(configs, addonv1beta1.AddOnConfig{
			ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "example.com", Resource: resource},
			ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: "ns", Name: name},
		})
	}
	return configs
}

// AM-05: of each type the last layer counts, as a whole.
func TestEffective(t *testing.T) {
	t.Parallel()
	none := addonv1beta1.ReservedNoDefaultConfigName
	for name, test := range map[string]struct {
		layers [][]addonv1beta1.AddOnConfig
		want   []addonv1beta1.AddOnConfig
	}{
		"nothing": {nil, nil},
		"defaults": {[][]addonv1beta1.AddOnConfig{slices.Concat(of("b", "1"), of("a", "2"), of("c", none))},
			slices.Concat(of("a", "2"), of("b", "1"))},
		"a placement replaces a type": {[][]addonv1beta1.AddOnConfig{slices.Concat(of("a", "1"), of("b", "1")), of("a", "3", "2")},
			slices.Concat(of("a", "3", "2"), of("b", "1"))},
		"the cluster has the last word": {
			[][]addonv1beta1.AddOnConfig{of("a", "1"), of("a", "2", "3"), of("a", "4")}, of("a", "4"),
		},
		"each once, in their order": {[][]addonv1beta1.AddOnConfig{nil, of("a", "2", "1", "2")}, of("a", "2", "1")},
		"no default is no override": {[][]addonv1beta1.AddOnConfig{of("a", none), nil, of("a", none, "1")}, of("a", "1")},
	} {
		if got := Effective(test.layers...); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// AM-07: a reference that is pending names the configuration, and has a hash, which is empty.
func TestPending(t *testing.T) {
	t.Parallel()
	pending := Pending(of("a", "1"))
	text, err := json.Marshal(pending)
	if want := `[{"group":"example.com","resource":"a","desiredConfig":{"namespace":"ns","name":"1","specHash":""}}]`; err != nil ||
		string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	if len(Pending(nil)) > 0 || !IsPending(pending[0]) || !IsPending(addonv1beta1.ConfigReference{}) ||
		IsPending(reference("g.io", "ns", "h")) {
		t.Error("not as it is")
	}
}

// A8.
func TestSupported(t *testing.T) {
	t.Parallel()
	supported, others := Supported(slices.Concat(of("a", "1"), of("b", "2")),
		[]addonv1beta1.ConfigGroupResource{of("b", "")[0].ConfigGroupResource})
	if !slices.Equal(supported, of("b", "2")) || !slices.Equal(others, of("a", "1")) {
		t.Errorf("%v and %v", supported, others)
	}
}

func reference(group, namespace, hash string) addonv1beta1.ConfigReference {
	return addonv1beta1.ConfigReference{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: group, Resource: "things"},
		DesiredConfig: &addonv1beta1.ConfigSpecHash{
			ConfigReferent: addonv1beta1.ConfigReferent{Namespace: namespace, Name: "one"}, SpecHash: hash,
		},
	}
}

// AM-09: works say in an annotation what they were made of.
func TestMadeOf(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotation string
		references []addonv1beta1.ConfigReference
		want       bool
	}{
		"nothing of nothing": {"", nil, true},
		"nothing of one":     {"", []addonv1beta1.ConfigReference{reference("g.io", "ns", "h")}, false},
		"the same":           {`{"things.g.io/ns/one":"h"}`, []addonv1beta1.ConfigReference{reference("g.io", "ns", "h")}, true},
		"another state":      {`{"things.g.io/ns/one":"i"}`, []addonv1beta1.ConfigReference{reference("g.io", "ns", "h")}, false},
		"another namespace":  {`{"things.g.io/ns/one":"h"}`, []addonv1beta1.ConfigReference{reference("g.io", "other", "h")}, false},
		"one of two": {`{"things.g.io/ns/one":"h"}`, []addonv1beta1.ConfigReference{reference("g.io", "ns", "h"),
			reference("g.io", "", "h")}, false},
		"no namespace":           {`{"things.g.io//one":"h"}`, []addonv1beta1.ConfigReference{reference("g.io", "", "h")}, true},
		"no namespace, no slash": {`{"things.g.io/one":"h"}`, []addonv1beta1.ConfigReference{reference("g.io", "", "h")}, true},
		"core group":             {`{"things./ns/one":"h"}`, []addonv1beta1.ConfigReference{reference("", "ns", "h")}, true},
		"core group, no dot":     {`{"things/ns/one":"h"}`, []addonv1beta1.ConfigReference{reference("", "ns", "h")}, true},
		"not hashed yet":         {`{"things.g.io/ns/one":""}`, []addonv1beta1.ConfigReference{reference("g.io", "ns", "")}, false},
		"no JSON":                {`things`, nil, false},
	} {
		if got := MadeOf(map[string]string{fleet.AnnotationConfigSpecHash: test.annotation}, test.references); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// AF-12: what is written is what is looked for.
func TestAnnotation(t *testing.T) {
	t.Parallel()
	references := []addonv1beta1.ConfigReference{reference("g.io", "ns", "h"), reference("g.io", "", "i")}
	text, err := Annotation(references)
	if want := `{"things.g.io//one":"i","things.g.io/ns/one":"h"}`; err != nil || text != want {
		t.Errorf("%s, %v", text, err)
	}
	if !MadeOf(map[string]string{fleet.AnnotationConfigSpecHash: text}, references) {
		t.Error("does not match itself")
	}
	if text, err := Annotation(nil); err != nil || text != "" {
		t.Errorf("%q, %v of nothing", text, err)
	}
}

// AM-09: an add-on of which a cluster is to have nothing says of which configurations that is.
func TestNothingMadeOf(t *testing.T) {
	t.Parallel()
	one, other := reference("g.io", "ns", "h"), reference("g.io", "ns", "i")
	for name, test := range map[string]struct {
		of, desired []addonv1beta1.ConfigReference
		want        bool
	}{
		"of none":                     {nil, nil, true},
		"of none, and one is desired": {nil, []addonv1beta1.ConfigReference{one}, false},
		"of one":                      {[]addonv1beta1.ConfigReference{one}, []addonv1beta1.ConfigReference{one}, true},
		"of another state":            {[]addonv1beta1.ConfigReference{other}, []addonv1beta1.ConfigReference{one}, false},
	} {
		annotation, err := Annotation(test.of)
		if err != nil {
			t.Fatal(err)
		}
		if got := NothingMadeOf(NothingMessage(annotation), test.desired); got != test.want {
			t.Errorf("%s: %t of %q", name, got, NothingMessage(annotation))
		}
	}
}
