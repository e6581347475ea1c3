package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/placement"
)

// SC-02 P7
func TestHubFlags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args  []string
		check func(hub.Options) bool
		err   string
	}{
		"defaults": {nil, func(o hub.Options) bool {
			return slices.Equal(o.Groups, hub.Groups()) && len(o.AutoApprovedUsers) == 0 && !o.WithoutDefaultSets && len(o.CleanupResources) == 2
		}, ""},
		"none":          {[]string{"--controllers=none"}, func(o hub.Options) bool { return len(o.Groups) == 0 }, ""},
		"some":          {[]string{"--controllers=work,registration"}, func(o hub.Options) bool { return len(o.Groups) == 2 }, ""},
		"no such group": {[]string{"--controllers=works"}, nil, `"works" is no group of controllers`},
		"no groups":     {[]string{"--controllers="}, nil, "name at least one"},
		"users": {[]string{"--feature-gates=ManagedClusterAutoApproval=true", "--auto-approved-csr-users=a,b", "--cluster-auto-approval-users=c"},
			func(o hub.Options) bool { return slices.Equal(o.AutoApprovedUsers, []string{"a", "b", "c"}) }, ""},
		"users without the gate": {[]string{"--auto-approved-csr-users=a"}, nil, "--feature-gates=ManagedClusterAutoApproval=true"},
		"no default sets":        {[]string{"--feature-gates=DefaultClusterSet=false"}, func(o hub.Options) bool { return o.WithoutDefaultSets }, ""},
		"resources": {[]string{"--gc-resource-list=/v1/configmaps"}, func(o hub.Options) bool {
			return len(o.CleanupResources) == 1 && o.CleanupResources[0].Resource == "configmaps" && o.CleanupResources[0].Group == ""
		}, ""},
		"no resource":       {[]string{"--gc-resource-list=configmaps"}, nil, `"configmaps" is not group/version/resource`},
		"tie-break":         {nil, func(o hub.Options) bool { return o.TieBreak == placement.TieBreakName }, ""},
		"tie-break by hash": {[]string{"--placement-tie-break=Hash"}, func(o hub.Options) bool { return o.TieBreak == placement.TieBreakHash }, ""},
		"no such tie-break": {[]string{"--placement-tie-break=Random"}, nil, `--placement-tie-break is "Random"; use one of Name, Hash`},
		"negative timeout":  {[]string{"--cluster-deletion-timeout=-1s"}, nil, "-1s is negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, flags := newHubFlags(), pflag.NewFlagSet("hub", pflag.ContinueOnError)
			f.add(flags)
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			o, err := f.options()
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want an error about %s", err, test.err)
				}
				return
			}
			if err != nil || !test.check(o) {
				t.Errorf("%+v, %v", o, err)
			}
		})
	}
}
