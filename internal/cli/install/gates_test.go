package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/operator/gates"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// CA-08: the gates that this program sends are those that the hub and agents declare, with the same defaults, and that of the operators.
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
			want, got := []string{string(gates.NetworkPolicies) + "=true"}, []string{}
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
	flag := &gateFlag{gates: hubFeatureGates, set: map[string]bool{}}
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

// KL-34, CM-29: who does without network policies says so to both operators, in the part where they read it.
func TestWithoutNetworkPolicies(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]map[string]featureGate{"init": hubFeatureGates, "join": agentFeatureGates} {
		flag := &gateFlag{gates: known, set: map[string]bool{}}
		if err := flag.Set("NetworkPolicies=false"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := fmt.Sprint(flag.of(registrationPart)); !strings.Contains(got, "map[feature:NetworkPolicies mode:Disable]") {
			t.Errorf("%s sends %s", name, got)
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
		u := &upgrading{what: upgradableHub, force: force}
		if got, err := u.change(operator, map[string]any{"workImagePullSpec": "w"}); err != nil || string(got) != want {
			t.Errorf("force %t: %s, %v", force, got, err)
		}
	}
}

// CA-41, O7: an upgrade does not skip a minor version, and does not go back: of the operator that runs, and of what is installed.
func TestUpgradeSkew(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		from, to, installed, allowed, refused string
	}{
		"patch":              {from: "r/hub:v0.1.0", to: "r/hub:v0.1.5"},
		"next minor":         {from: "r/hub:v0.1.0", to: "r/hub:v0.2.0"},
		"next major":         {from: "r/hub:v0.9.0", to: "r/hub:v1.0.0"},
		"other registry":     {from: "r/hub:v0.1.0", to: "r:5000/x/hub:v0.3.0", refused: "skips a minor version"},
		"skipped":            {from: "r/hub:v0.1.0", to: "r/hub:v0.3.0", refused: "install version 0.2 first"},
		"major and minor":    {from: "r/hub:v0.1.0", to: "r/hub:v1.1.0", refused: "install version 1.0 first"},
		"back":               {from: "r/hub:v0.2.0", to: "r/hub:v0.1.9", refused: "v0.1.9 is older"},
		"no version":         {from: "r/hub:devel", to: "r/hub:v0.3.0"},
		"digest":             {from: "r/hub@sha256:00", to: "r/hub:v0.3.0"},
		"of another project": {from: "quay.io/open-cluster-management/registration-operator:v1.3.1", to: "r/hub:v0.1.0"},
		"digest, next":       {from: "r/hub@sha256:00", to: "r/hub:v0.3.0", installed: "v0.2.1"},
		"digest, skipped":    {from: "r/hub@sha256:00", to: "r/hub:v0.3.0", installed: "v0.1.0", refused: "ClusterManager hub: version v0.1.0"},
		"digest, back":       {from: "r/hub@sha256:00", to: "r/hub:v0.3.0", installed: "v0.4.0", refused: "v0.3.0 is older"},
		"allowed":            {from: "r/hub@sha256:00", to: "r/hub:v0.3.0", installed: "v0.1.0", allowed: "v0.3.0"},
		"another allowed":    {from: "r/hub@sha256:00", to: "r/hub:v0.4.0", installed: "v0.1.0", allowed: "v0.3.0", refused: "skips"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			custom := unstructured.Unstructured{}
			custom.SetName("hub")
			custom.SetAnnotations(map[string]string{upgrade.AnnotationVersion: test.installed, upgrade.AnnotationSkip: test.allowed})
			err := checkSkew(test.from, test.to, "ClusterManager", []unstructured.Unstructured{custom})
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
