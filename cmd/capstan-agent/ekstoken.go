package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/agent/registration/ekstoken"
)

// newEKSTokenCommand is what hub kubeconfigs run where there is no AWS command line.
func newEKSTokenCommand() *cobra.Command {
	var options ekstoken.Options
	command := &cobra.Command{
		Use:   ekstoken.Command,
		Short: "Print a token for the API server of an EKS cluster, as an ExecCredential",
		Long: `Print a token for the API server of an EKS cluster, as an ExecCredential.

It does what "aws eks get-token" does, with the role of the pod: the environment says which
that is, as EKS does for the pods of a service account with the annotation eks.amazonaws.com/role-arn.
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN go before it.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			credential, err := ekstoken.Get(command.Context(), options)
			if err != nil {
				return err
			}
			return json.NewEncoder(command.OutOrStdout()).Encode(credential)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.Cluster, "cluster-name", "", "name of the EKS cluster")
	flags.StringVar(&options.Region, "region", "", "region of the EKS cluster")
	flags.StringVar(&options.Role, "role-arn", "", "IAM role to get the token as")
	return command
}
