package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// KL-35: the flags of the operator, and what makes no sense.
func TestOperatorFlags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"--skip-placeholder-hub-secret --deployment-replicas=2 --disable-default-addon-namespace --enable-sync-labels --kube-api-qps=5": "",
		"--control-plane-node-label-selector=node-role.kubernetes.io/master=":                                                           "",
		"--listen=0 --metrics-bind-address=127.0.0.1:8080 --health-probe-bind-address=:8081 -v=4 --vmodule=a=1 --logging-format=json":   "",
		"--deployment-replicas=-1":                  "--deployment-replicas is -1; it must be 0, to choose by the number of nodes, or more",
		"--control-plane-node-label-selector=a=b=c": `--control-plane-node-label-selector is "a=b=c"`,
	} {
		f, flags := &operatorFlags{}, pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(flags)
		if err := flags.Parse(strings.Fields(line)); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		err := f.complete()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
		if want == "" && !strings.HasPrefix(f.install.Image, defaultImage) {
			t.Errorf("%s: the image is %s", line, f.install.Image)
		}
	}
}
