package install

import "testing"

// CA-41: what an image is compared by.
func TestSplitImage(t *testing.T) {
	t.Parallel()
	for image, want := range map[string][2]string{
		"capstan-hub":                          {"capstan-hub", ""},
		"capstan-hub:v1.2.3":                   {"capstan-hub", "v1.2.3"},
		"quay.io/org/capstan-hub:v1.2.3":       {"quay.io/org/capstan-hub", "v1.2.3"},
		"registry.example:5000/capstan-hub":    {"registry.example:5000/capstan-hub", ""},
		"registry.example:5000/a/hub:devel-1a": {"registry.example:5000/a/hub", "devel-1a"},
		"[2001:db8::1]:5000/hub:v1":            {"[2001:db8::1]:5000/hub", "v1"},
		"quay.io/hub:v1@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08": {"quay.io/hub", "v1"},
		"quay.io/hub@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08":    {"quay.io/hub", ""},
		"not an image": {"not an image", ""},
	} {
		if repository, tag := splitImage(image); repository != want[0] || tag != want[1] {
			t.Errorf("%s is %q and %q, expected %q", image, repository, tag, want)
		}
	}
}
