package install

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
)

// How clusters register.
const (
	driverCSR  = string(operatorv1.RegistrationAuthTypeCSR)
	driverGRPC = string(operatorv1.RegistrationAuthTypeGRPC)
	driverAWS  = string(operatorv1.RegistrationAuthTypeAWSIRSA)
)

var drivers = []string{driverCSR, driverGRPC, driverAWS}

func checkDriver(flag, driver string) error {
	if !slices.Contains(drivers, driver) {
		return fmt.Errorf("%s: %q is no driver; choose out of %s", flag, driver, strings.Join(drivers, ", "))
	}
	return nil
}

// hubGRPCFlags say how clusters register through the gRPC server of a hub.
type hubGRPCFlags struct {
	identities   []string
	host         string
	endpointType string
}

func (f *hubGRPCFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringSliceVar(&f.identities, "auto-approved-grpc-identities", nil,
		"users of the gRPC server whose clusters are accepted without an administrator; needs --feature-gates ManagedClusterAutoApproval=true")
	flags.StringVar(&f.host, "grpc-server", "", "host name or IP address by which clusters reach the gRPC server, for its certificate")
	flags.StringVar(&f.endpointType, "grpc-endpoint-type", string(operatorv1.EndpointTypeHostname),
		"how clusters reach the gRPC server: hostname leads --grpc-server to it by your own means, loadBalancer makes its Service one of that type")
	for _, flag := range []string{"auto-approved-grpc-identities", "grpc-server"} {
		options.Complete(command, flag, cobra.NoFileCompletions)
	}
	options.Complete(command, "grpc-endpoint-type", cobra.FixedCompletions(
		[]string{string(operatorv1.EndpointTypeHostname), string(operatorv1.EndpointTypeLoadBalancer)}, cobra.ShellCompDirectiveNoFileComp))
}

// check finds what is missing or makes no sense, with the driver or without.
func (f *hubGRPCFlags) check(enabled bool, gates *gateFlag) error {
	hostname, loadBalancer := string(operatorv1.EndpointTypeHostname), string(operatorv1.EndpointTypeLoadBalancer)
	switch {
	case f.endpointType != hostname && f.endpointType != loadBalancer:
		return fmt.Errorf("--grpc-endpoint-type: %q is none of %s, %s", f.endpointType, hostname, loadBalancer)
	case !enabled && len(f.identities) > 0:
		return withoutGRPC("--auto-approved-grpc-identities", "--registration-drivers")
	case !enabled && f.host != "":
		return withoutGRPC("--grpc-server", "--registration-drivers")
	case !enabled && f.endpointType != hostname:
		return withoutGRPC("--grpc-endpoint-type", "--registration-drivers")
	case !enabled:
		return nil
	case len(f.identities) > 0 && !gates.enabled("ManagedClusterAutoApproval"):
		return errors.New("--auto-approved-grpc-identities: useless without --feature-gates ManagedClusterAutoApproval=true")
	case f.host == "" && f.endpointType == hostname:
		return errors.New("--grpc-server is missing: the host name or IP address by which clusters reach the gRPC server; " +
			"or let a load balancer have one: --grpc-endpoint-type loadBalancer")
	case f.host != "" && net.ParseIP(f.host) == nil && len(validation.IsDNS1123Subdomain(f.host)) > 0:
		return fmt.Errorf("--grpc-server: %q must be a host name or IP address, without scheme and port", f.host)
	}
	return nil
}

func withoutGRPC(flag, of string) error {
	return fmt.Errorf("%s: useless without grpc in %s", flag, of)
}

// driver is the driver as in a ClusterManager.
func (f *hubGRPCFlags) driver() map[string]any {
	driver := map[string]any{"authType": driverGRPC}
	if len(f.identities) > 0 {
		driver[driverGRPC] = map[string]any{"autoApprovedIdentities": f.identities}
	}
	return driver
}

// server is the serverConfiguration of a ClusterManager.
func (f *hubGRPCFlags) server() map[string]any {
	host := map[string]any{}
	if f.host != "" {
		host["host"] = f.host
	}
	return map[string]any{"endpointsExposure": []any{map[string]any{
		"usage": string(operatorv1.EndpointUsageAgentToHub), "protocol": string(operatorv1.EndpointProtocolGRPC),
		string(operatorv1.EndpointProtocolGRPC): map[string]any{"type": f.endpointType, f.endpointType: host},
	}}}
}

// address is where clusters reach the server; what is in angle brackets is for the person to fill in.
func (f *hubGRPCFlags) address() string {
	host, port := f.host, "<port>"
	if host == "" {
		host = "<address_of_the_load_balancer>"
	}
	if f.endpointType == string(operatorv1.EndpointTypeLoadBalancer) {
		port = "443"
	}
	return net.JoinHostPort(host, port)
}

// agentGRPCFlags say where an agent finds the gRPC server of its hub.
type agentGRPCFlags struct {
	server string
	caFile string
}

func (f *agentGRPCFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.server, "grpc-server", "", "HOST:PORT of the hub's gRPC server, with --registration-auth grpc")
	flags.StringVar(&f.caFile, "grpc-ca-file", "",
		"PEM certificates to verify the hub's gRPC server with; without, those that the hub publishes in the ConfigMap ca-bundle-configmap")
	options.Complete(command, "grpc-server", cobra.NoFileCompletions)
}

// check finds what is missing or makes no sense, with the driver or without.
func (f *agentGRPCFlags) check(enabled bool) error {
	switch {
	case !enabled && f.server != "":
		return withoutGRPC("--grpc-server", "--registration-auth")
	case !enabled && f.caFile != "":
		return withoutGRPC("--grpc-ca-file", "--registration-auth")
	case !enabled:
		return nil
	case f.server == "":
		return errors.New("--grpc-server is missing: the HOST:PORT of the hub's gRPC server, with --registration-auth grpc")
	}
	if err := grpcconfig.ValidateAddress(f.server); err != nil {
		return fmt.Errorf("--grpc-server: %w", err)
	}
	return nil
}

// agentDriverFlags say how an agent registers with the hub, and its add-ons.
type agentDriverFlags struct {
	registration     string
	addOns           string
	addOnTokenExpiry int64
	grpc             agentGRPCFlags
	aws              agentAWSFlags
}

func (f *agentDriverFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.registration, "registration-auth", driverCSR,
		"how the agent registers: csr by certificate requests, grpc through the gRPC server of --grpc-server, awsirsa by AWS IAM")
	flags.StringVar(&f.addOns, "addon-kubeclient-registration-auth", driverCSR, "how add-ons register: csr or token")
	flags.Int64Var(&f.addOnTokenExpiry, "addon-token-expiration-seconds", 0,
		"validity of the tokens of add-ons in seconds, with --addon-kubeclient-registration-auth token; 0 for the default of the agent")
	f.grpc.add(command)
	f.aws.add(command)
	options.Complete(command, "registration-auth", cobra.FixedCompletions(drivers, cobra.ShellCompDirectiveNoFileComp))
	options.Complete(command, "addon-kubeclient-registration-auth",
		cobra.FixedCompletions([]string{driverCSR, "token"}, cobra.ShellCompDirectiveNoFileComp))
	options.Complete(command, "addon-token-expiration-seconds", cobra.NoFileCompletions)
}

func (f *agentDriverFlags) check() error {
	if err := checkDriver("--registration-auth", f.registration); err != nil {
		return err
	}
	if err := f.aws.check(f.registration == driverAWS); err != nil {
		return err
	}
	if err := f.grpc.check(f.registration == driverGRPC); err != nil {
		return err
	}
	switch {
	case f.addOns != driverCSR && f.addOns != "token":
		return fmt.Errorf("--addon-kubeclient-registration-auth: %q is none of csr, token", f.addOns)
	case f.addOnTokenExpiry != 0 && f.addOns != "token":
		return errors.New("--addon-token-expiration-seconds: useless without --addon-kubeclient-registration-auth token")
	case f.addOnTokenExpiry != 0 && f.addOnTokenExpiry < 600:
		return fmt.Errorf("--addon-token-expiration-seconds: %d: must be at least 600, or 0", f.addOnTokenExpiry)
	}
	return nil
}

// addOnValues are the addOnKubeClientRegistrationDriver of a Klusterlet.
func (f *agentDriverFlags) addOnValues() map[string]any {
	driver := map[string]any{"authType": f.addOns}
	if f.addOnTokenExpiry != 0 {
		driver["token"] = map[string]any{"expirationSeconds": f.addOnTokenExpiry}
	}
	return driver
}
