// Command hyperkube has the programs of a Kubernetes cluster of one node in one binary, and etcd, CoreDNS, kubectl and what enforces
// NetworkPolicies with them: one link, and one copy of the program's text in memory for all of them. The first argument names the program;
// the others are its arguments.
//
// It is a Go module of its own so that Capstan does not require what only a kubelet or a DNS server needs. It requires the versions of
// Capstan's module, so that a build takes most packages from the cache.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs

	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs take their arguments from os.Args. All but kubectl run until they are stopped.
var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"coredns":                 coremain.Run,
	"kube-apiserver":          component(apiserver.NewAPIServerCommand),
	"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              component(proxy.NewProxyCommand),
	"kube-network-policies":   enforceNetworkPolicies,
	"kubectl":                 func() { kubectlutil.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand())) },
	"kubelet":                 component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
}

func component(newCommand func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(newCommand())) }
}

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	run, found := programs[name]
	if !found {
		fmt.Fprintf(os.Stderr, "usage: hyperkube PROGRAM FLAGS...\nPROGRAM %q is none of %s\n", name,
			strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	run()
}
