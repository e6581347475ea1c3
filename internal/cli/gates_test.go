package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/featuregates"
)

// CA-08: the gates that this program sends are those that the hub and agents declare, with the same defaults.
func TestFeatureGatesAreDeclared(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		known    map[string]featureGate
		declared *featuregates.Set
	}{"hub": {hubFeatureGates, featuregates.Hub()}, "agent": {agentFeatureGates, featuregates.Agent()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
			test.declared.AddFlag(flags)
			var want, got []string
			for line := range strings.SplitSeq(flags.Lookup("feature-gates").Usage, "\n") {
				if gate, rest, ok := strings.Cut(line, " ("); ok {
					want = append(want, fmt.Sprintf("%s=%t", gate, strings.Contains(rest, "default true")))
				}
			}
			for gate, spec := range test.known {
				got = append(got, fmt.Sprintf("%s=%t", gate, spec.on))
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("this program knows %v, declared are %v", got, want)
			}
		})
	}
}

// CA-08: gates that are on are sent as Enable, those that were switched off as Disable, others not at all.
func TestFeatureGatesOfPart(t *testing.T) {
	t.Parallel()
	flag := &gateFlag{known: hubFeatureGates, set: map[string]bool{}}
	if err := flag.Set("ManifestWorkReplicaSet=false,NilExecutorValidating=true"); err != nil {
		t.Fatal(err)
	}
	want := "[map[feature:CleanUpCompletedManifestWork mode:Enable] map[feature:ManifestWorkReplicaSet mode:Disable] " +
		"map[feature:NilExecutorValidating mode:Enable]]"
	if got := fmt.Sprint(flag.of(workPart)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, bad := range []string{"Nonsense=true", "ManifestWorkReplicaSet=perhaps"} {
		if err := flag.Set(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// CA-41: who insists on an upgrade that skips a minor version does so to the operator, too, for the version that comes.
func TestUpgradeChange(t *testing.T) {
	t.Parallel()
	operator := []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "cluster-manager"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"image": "r.example.com:5000/x:v0.5.0"}}}}},
	}}}
	for force, want := range map[bool]string{
		false: `{"spec":{"workImagePullSpec":"w"}}`,
		true:  `{"metadata":{"annotations":{"capstan.io/allow-version-skip":"v0.5.0"}},"spec":{"workImagePullSpec":"w"}}`,
	} {
		u := &upgrading{what: upgradables[0], force: force}
		if got, err := u.change(operator, map[string]any{"workImagePullSpec": "w"}); err != nil || string(got) != want {
			t.Errorf("force %t: %s, %v", force, got, err)
		}
	}
}

// CA-41: an upgrade does not skip a minor version, and does not go back.
func TestUpgradeSkew(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		from, to, refused string
	}{
		"patch":              {"r/capstan-hub:v0.1.0", "r/capstan-hub:v0.1.5", ""},
		"next minor":         {"r/capstan-hub:v0.1.0", "r/capstan-hub:v0.2.0", ""},
		"next major":         {"r/capstan-hub:v0.9.0", "r/capstan-hub:v1.0.0", ""},
		"other registry":     {"r/capstan-hub:v0.1.0", "r:5000/x/capstan-hub:v0.3.0", "skips a minor version"},
		"skipped":            {"r/capstan-hub:v0.1.0", "r/capstan-hub:v0.3.0", "skips a minor version"},
		"major and minor":    {"r/capstan-hub:v0.1.0", "r/capstan-hub:v1.1.0", "skips a minor version"},
		"back":               {"r/capstan-hub:v0.2.0", "r/capstan-hub:v0.1.9", "newer than v0.1.9"},
		"no version":         {"r/capstan-hub:devel", "r/capstan-hub:v0.3.0", ""},
		"digest":             {"r/capstan-hub@sha256:00", "r/capstan-hub:v0.3.0", ""},
		"of another project": {"quay.io/open-cluster-management/registration-operator:v1.3.1", "r/capstan-hub:v0.1.0", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkSkew(test.from, test.to)
			if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%v, want %q", err, test.refused)
			}
		})
	}
}

// CA-07: the images are those of this program's version, whatever it is called.
func TestImageTag(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]string{
		"v0.2.0": "v0.2.0", "devel": "devel", "devel-0123456789ab": "devel-0123456789ab", "v0.2.0-rc.1+x": "v0.2.0-rc.1_x",
		"v0.0.0-20261123010203-0123456789ab": "devel-0123456789ab", "v0.2.1-0.20261123010203-0123456789ab+dirty": "devel-0123456789ab",
	} {
		for _, bundle := range []string{defaultBundle, "1.3.1", "v1.1.0"} {
			if got, err := (&bundleFlags{version: bundle}).imageTag(release); err != nil || got != want {
				t.Errorf("%s of %s is %q, %v; want %q", bundle, release, got, err, want)
			}
		}
	}
	if got, err := (&bundleFlags{version: latestBundle}).imageTag("v0.2.0"); err != nil || got != latestBundle {
		t.Errorf("latest is %q, %v", got, err)
	}
	if _, err := (&bundleFlags{version: "9.9.9"}).imageTag("v0.2.0"); err == nil {
		t.Error("an unknown bundle is accepted")
	}
}
