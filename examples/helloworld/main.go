// Command helloworld is an add-on that copies the ConfigMaps of a cluster's namespace on the hub to the cluster: about the least that
// an add-on with an agent of its own can do. Its two halves are in this one program: the controller runs once, next to the hub; the
// agent runs on every cluster, where the controller deploys it.
package main

import (
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

func main() {
	ctrl.SetLogger(zap.New())
	command := &cobra.Command{Use: "helloworld", Short: "An add-on that copies ConfigMaps from the hub", SilenceUsage: true}
	command.AddCommand(newControllerCommand(), newAgentCommand())
	if err := command.ExecuteContext(signals.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}
