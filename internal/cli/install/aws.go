package install

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/eks"
)

// hubAWSFlags say how EKS clusters register with a hub by AWS IAM.
type hubAWSFlags struct {
	hubARN   string
	patterns []string
	tags     []string
}

func (f *hubAWSFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.hubARN, "hub-cluster-arn", "", "ARN of the hub, with awsirsa (default the name of the cluster in the kubeconfig, which the AWS command "+
		"line sets to the ARN)")
	flags.StringSliceVar(&f.tags, "aws-resource-tags", nil, "tags of what the hub makes in AWS, with awsirsa, each as KEY=VALUE")
	flags.StringArrayVar(&f.patterns, "auto-approved-arn-patterns", nil, "regular expression for the whole ARNs of EKS clusters that are accepted without an "+
		"administrator, may be given several times; needs --feature-gates ManagedClusterAutoApproval=true")
	for _, flag := range []string{"hub-cluster-arn", "aws-resource-tags", "auto-approved-arn-patterns"} {
		options.Complete(command, flag, cobra.NoFileCompletions)
	}
}

// check is given whether clusters register by AWS IAM.
func (f *hubAWSFlags) check(enabled bool, gates *gateFlag, singleton bool) error {
	if !enabled {
		for flag, set := range map[string]bool{
			"hub-cluster-arn": f.hubARN != "", "aws-resource-tags": len(f.tags) > 0, "auto-approved-arn-patterns": len(f.patterns) > 0,
		} {
			if set {
				return fmt.Errorf("--%s: useless without %s in --registration-drivers", flag, driverAWS)
			}
		}
		return nil
	}
	if singleton {
		return fmt.Errorf("--registration-drivers %s: not with --singleton: the API server of a standalone hub does not know identities of AWS", driverAWS)
	}
	if _, err := eks.Parse(f.hubARN); err != nil {
		return fmt.Errorf("--hub-cluster-arn: %w", err)
	}
	if _, err := eks.ParsePatterns(f.patterns); err != nil {
		return fmt.Errorf("--auto-approved-arn-patterns: %w", err)
	}
	if len(f.patterns) > 0 && !gates.enabled("ManagedClusterAutoApproval") {
		return fmt.Errorf("--auto-approved-arn-patterns: useless without --feature-gates ManagedClusterAutoApproval=true")
	}
	return nil
}

// values are the driver of a ClusterManager.
func (f *hubAWSFlags) values() map[string]any {
	config := map[string]any{"hubClusterArn": f.hubARN}
	if len(f.patterns) > 0 {
		config["autoApprovedIdentities"] = f.patterns
	}
	if len(f.tags) > 0 {
		config["tags"] = f.tags
	}
	return map[string]any{"authType": driverAWS, "awsirsa": config}
}

// agentAWSFlags are the two clusters in AWS.
type agentAWSFlags struct{ hubARN, managedARN string }

func (f *agentAWSFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.hubARN, "hub-cluster-arn", "", "ARN of the hub, with --registration-auth awsirsa")
	flags.StringVar(&f.managedARN, "managed-cluster-arn", "", "ARN of the cluster, with --registration-auth awsirsa (default the name of the cluster in the "+
		"kubeconfig, which the AWS command line sets to the ARN)")
	for _, flag := range []string{"hub-cluster-arn", "managed-cluster-arn"} {
		options.Complete(command, flag, cobra.NoFileCompletions)
	}
}

func (f *agentAWSFlags) check(enabled bool) error {
	if !enabled {
		for flag, value := range map[string]string{"hub-cluster-arn": f.hubARN, "managed-cluster-arn": f.managedARN} {
			if value != "" {
				return fmt.Errorf("--%s: useless without --registration-auth %s", flag, driverAWS)
			}
		}
		return nil
	}
	if _, err := eks.Parse(f.hubARN); err != nil {
		return fmt.Errorf("--hub-cluster-arn: %w", err)
	}
	if _, err := eks.Parse(f.managedARN); err != nil {
		return fmt.Errorf("--managed-cluster-arn: %w", err)
	}
	return nil
}

// values are the driver of a Klusterlet.
func (f *agentDriverFlags) values() map[string]any {
	driver := map[string]any{"authType": f.registration}
	if f.registration == driverAWS {
		driver["awsIrsa"] = map[string]any{"hubClusterArn": f.aws.hubARN, "managedClusterArn": f.aws.managedARN}
	}
	return driver
}

// currentCluster is the name of the cluster in the kubeconfig; empty if there is none.
func currentCluster(global *options.Global) string {
	config, err := global.ConfigAccess().GetStartingConfig()
	if err != nil {
		return ""
	}
	name := config.CurrentContext
	if global.Context != "" {
		name = global.Context
	}
	if config.Contexts[name] == nil {
		return ""
	}
	return config.Contexts[name].Cluster
}
