package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-io/capstan/internal/controlplane"
	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/placement"
)

// SC-02 SC-03: what of the configuration has no effect is logged at the start.
func TestLoggedConfiguration(t *testing.T) {
	t.Parallel()
	const file = "/hub/ocmconfig.yaml"
	embedded, external := ocmconfig.Config{}, ocmconfig.Config{}
	embedded.Etcd.Mode, external.Etcd.Mode = ocmconfig.EtcdEmbed, ocmconfig.EtcdExternal
	etcdFlags := []string{"--embedded-etcd-directory=/etcd", "--embedded-etcd-client-port=2379", "--embedded-etcd-peer-port=2380",
		"--embedded-etcd-wal-size-bytes=1", "--embedded-etcd-quota-bytes=1"}
	selfFlags := []string{"--self-management-cluster-name=local", "--self-management-kubeconfig=file"}
	for name, test := range map[string]struct {
		args   []string
		config ocmconfig.Config
		lines  []string // what they hold
	}{
		"a file":        {config: embedded},
		"embedded etcd": {config: embedded, args: etcdFlags},
		"external etcd": {config: external, args: etcdFlags, lines: []string{
			`"--embedded-etcd-client-port" "reason"="etcd.mode in /hub/ocmconfig.yaml is external"`, `"--embedded-etcd-directory"`,
			`"--embedded-etcd-peer-port"`, `"--embedded-etcd-quota-bytes"`, `"--embedded-etcd-wal-size-bytes"`}},
		"self-management": {config: external, args: append([]string{"--self-management"}, selfFlags...)},
		"no self-management": {config: embedded, args: selfFlags, lines: []string{
			`"--self-management-cluster-name" "reason"="--self-management is not set"`, `"--self-management-kubeconfig"`}},
		"no file": {config: ocmconfig.Config{NotFound: true, DataDirectory: "/.ocm"},
			lines: []string{`"There is no configuration file; the defaults apply" "file"="/hub/ocmconfig.yaml" "dataDirectory"="/.ocm"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, flags := serverFlags{}, pflag.NewFlagSet("", pflag.ContinueOnError)
			f.selfManagement.add(flags)
			controlplane.NewOptions().AddFlags(flags)
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			test.config.File = file
			var lines []string
			f.logConfiguration(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}), flags,
				&test.config)
			if !slices.EqualFunc(lines, test.lines, strings.Contains) {
				t.Errorf("logged %q, want %q", lines, test.lines)
			}
		})
	}
}

// SC-02 P7
func TestHubFlags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args  []string
		check func(hub.Options) bool
		err   string
	}{
		"defaults": {nil, func(o hub.Options) bool {
			return slices.Equal(o.Groups, hub.Groups()) && len(o.AutoApprovedUsers) == 0 && o.Gates.Enabled(featuregates.DefaultClusterSet) &&
				len(o.CleanupResources) == 2
		}, ""},
		"none": {[]string{"--controllers=none"}, func(o hub.Options) bool { return len(o.Groups) == 0 }, ""},
		"some": {[]string{"--controllers=work,registration"}, func(o hub.Options) bool { return len(o.Groups) == 2 }, ""},
		"a group that is off": {[]string{"--controllers=addon", "--feature-gates=AddonManagement=false"}, nil,
			"--controllers addon and --feature-gates leave nothing to run; switch on AddonManagement, or name"},
		"controllers that are off": {[]string{"--controllers=work",
			"--feature-gates=ManifestWorkReplicaSet=false,CleanUpCompletedManifestWork=false"}, nil,
			"switch on ManifestWorkReplicaSet or CleanUpCompletedManifestWork"},
		"one of them is on": {[]string{"--controllers=work", "--feature-gates=ManifestWorkReplicaSet=false"},
			func(o hub.Options) bool { return slices.Equal(o.Running(), []string{"work"}) }, ""},
		"a group that is off of some": {[]string{"--controllers=addon,placement", "--feature-gates=AddonManagement=false"},
			func(o hub.Options) bool { return slices.Equal(o.Running(), []string{"placement"}) }, ""},
		"no such group": {[]string{"--controllers=works"}, nil, `"works" is no group of controllers`},
		"no groups":     {[]string{"--controllers="}, nil, "name at least one"},
		"users": {[]string{"--feature-gates=ManagedClusterAutoApproval=true", "--auto-approved-csr-users=a,b", "--cluster-auto-approval-users=c"},
			func(o hub.Options) bool { return slices.Equal(o.AutoApprovedUsers, []string{"a", "b", "c"}) }, ""},
		"users without the gate": {[]string{"--auto-approved-csr-users=a"}, func(o hub.Options) bool { return len(o.AutoApprovedUsers) == 0 },
			""},
		"no default sets": {[]string{"--feature-gates=DefaultClusterSet=false"},
			func(o hub.Options) bool { return !o.Gates.Enabled(featuregates.DefaultClusterSet) }, ""},
		"labels": {[]string{"--labels=team=a,stage=prod"}, func(o hub.Options) bool {
			return o.Labels["team"] == "a" &&
				o.Labels["stage"] == "prod"
		}, ""},
		"no label": {[]string{"--labels=team=a b"}, nil, `--labels: Invalid value: "a b"`},
		"label of the hub": {[]string{"--labels=open-cluster-management.io/cluster-name=c"}, nil,
			"leave open-cluster-management.io/cluster-name out"},
		"label of a part of it": {[]string{"--labels=cluster.open-cluster-management.io/x=c"}, nil,
			"leave cluster.open-cluster-management.io/x out"},
		"name of a namespace": {[]string{"--labels=kubernetes.io/metadata.name=x"}, nil, "leave it out"},
		"aggregated roles": {[]string{"--labels=rbac.authorization.k8s.io/aggregate-to-admin=true"}, nil,
			"leave rbac.authorization.k8s.io/aggregate-to-admin out"},
		"label of Kubernetes": {[]string{"--labels=app.kubernetes.io/managed-by=x,pod-security.kubernetes.io/enforce=baseline"},
			func(o hub.Options) bool { return len(o.Labels) == 2 }, ""},
		"label of another": {[]string{"--labels=my-open-cluster-management.io/x=c"}, func(o hub.Options) bool { return len(o.Labels) == 1 },
			""},
		"other flags": {[]string{
			"--enabled-registration-drivers=csr", "--work-driver=kube", "--work-driver-config=/var/run/secrets/work/config.yaml",
			"--cloudevents-client-id=x",
			"--kube-api-qps=50", "--kube-api-burst=100", "--disable-leader-election", "--auto-approved-grpc-users=a", "--grpc-ca-file=f",
			"--grpc-key-file=f",
			"--grpc-signing-duration=720h", "--feature-gates=ManifestWorkReplicaSet=true,ResourceCleanup=true,ClusterImporter=true",
		}, func(hub.Options) bool { return true }, ""},
		"grpc without a CA": {[]string{"--enabled-registration-drivers=csr,grpc"}, nil, "set --grpc-ca-file and --grpc-key-file"},
		"grpc for a moment": {[]string{"--enabled-registration-drivers=grpc", "--grpc-ca-file=f", "--grpc-key-file=f",
			"--grpc-signing-duration=1s"}, nil,
			"--grpc-signing-duration is 1s, want at least 10m0s"},
		"grpc in no namespace": {[]string{"--enabled-registration-drivers=grpc", "--grpc-ca-file=f", "--grpc-key-file=f",
			"--grpc-server-namespace=A"}, nil,
			`--grpc-server-namespace="A" cannot be the name of a namespace`},
		"grpc of add-ons": {[]string{"--controllers=addon", "--grpc-server-namespace=indigo"},
			func(o hub.Options) bool { return o.GRPCServer == "system:serviceaccount:indigo:grpc-server-sa" }, ""},
		"grpc of add-ons in no namespace": {[]string{"--controllers=addon", "--grpc-server-namespace=A"}, nil,
			`--grpc-server-namespace="A" cannot be the name of a namespace`},
		"grpc": {[]string{"--enabled-registration-drivers=csr,grpc", "--grpc-ca-file=f", "--grpc-key-file=k", "--auto-approved-grpc-users=a"},
			func(o hub.Options) bool {
				return o.GRPC != nil && len(o.GRPC.Users) == 0 && o.GRPC.LongestValidity == 720*time.Hour &&
					o.GRPC.Server == "system:serviceaccount:open-cluster-management-hub:grpc-server-sa"
			}, ""},
		"users of grpc": {[]string{"--enabled-registration-drivers=grpc", "--grpc-ca-file=f", "--grpc-key-file=k", "--auto-approved-grpc-users=a",
			"--feature-gates=ManagedClusterAutoApproval=true"},
			func(o hub.Options) bool { return o.GRPC != nil && slices.Equal(o.GRPC.Users, []string{"a"}) }, ""},
		"without grpc":   {[]string{"--grpc-ca-file=f"}, func(o hub.Options) bool { return o.GRPC == nil }, ""},
		"no driver":      {[]string{"--enabled-registration-drivers="}, nil, "names none"},
		"no such driver": {[]string{"--enabled-registration-drivers=csr,post"}, nil, `"post" is no registration driver; use some of csr, grpc, awsirsa`},
		"imports by default": {nil, func(o hub.Options) bool {
			return slices.Equal(o.Import.Renderers, []string{"render-from-config-secret"}) && o.Import.AgentImage == ""
		}, ""},
		"imports": {[]string{"--cluster-import-renderers=render-auto,render-from-config-secret", "--cluster-import-agent-image=a/b:c"},
			func(o hub.Options) bool {
				return slices.Equal(o.Import.Renderers, []string{"render-auto", "render-from-config-secret"}) && o.Import.AgentImage == "a/b:c"
			}, ""},
		"no renderer":      {[]string{"--cluster-import-renderers="}, nil, "--cluster-import-renderers names none"},
		"no such renderer": {[]string{"--cluster-import-renderers=render-more"}, nil, `"render-more" is no renderer; use some of render-auto, render-`},
		"resources": {[]string{"--gc-resource-list=/v1/configmaps"}, func(o hub.Options) bool {
			return len(o.CleanupResources) == 1 && o.CleanupResources[0].Resource == "configmaps" && o.CleanupResources[0].Group == ""
		}, ""},
		"no resource": {[]string{"--gc-resource-list=configmaps"}, nil, `"configmaps" is not group/version/resource`},
		"tie-break":   {nil, func(o hub.Options) bool { return o.TieBreak == placement.TieBreakName }, ""},
		"tie-break by hash": {[]string{"--placement-tie-break=Hash"}, func(o hub.Options) bool { return o.TieBreak == placement.TieBreakHash },
			""},
		"no such tie-break":   {[]string{"--placement-tie-break=Random"}, nil, `--placement-tie-break is "Random"; use one of Name, Hash`},
		"negative timeout":    {[]string{"--cluster-deletion-timeout=-1s"}, nil, "-1s is negative"},
		"no such work driver": {[]string{"--work-driver=nats"}, nil, `--work-driver is "nats"; use one of kube, mqtt, grpc`},
		"no broker":           {[]string{"--work-driver=mqtt"}, nil, "--work-driver=mqtt takes --work-driver-config"},
		"no file of a broker": {[]string{"--work-driver=mqtt", "--work-driver-config=/nowhere"}, nil, "--work-driver-config: "},
		"AWS": {[]string{"--enabled-registration-drivers=csr,awsirsa", "--hub-cluster-arn=arn:aws:eks:us-west-2:123456789012:cluster/hub1",
			"--auto-approved-arn-patterns=arn:a{1,2}", "--aws-resource-tags=team=fleet,app:a=b,owner:me"}, func(o hub.Options) bool {
			return o.AWS != nil && o.AWS.Hub.Name == "hub1" && !o.WithoutCertificates && len(o.AutoApprovedARNs) == 0 &&
				maps.Equal(o.AWS.Tags, map[string]string{"team": "fleet", "app:a": "b", "owner": "me"})
		}, ""},
		"trusted ARNs": {[]string{"--enabled-registration-drivers=awsirsa", "--hub-cluster-arn=arn:aws:eks:us-west-2:123456789012:cluster/hub1",
			"--auto-approved-arn-patterns=arn:a{1,2}", "--feature-gates=ManagedClusterAutoApproval=true"}, func(o hub.Options) bool {
			return o.WithoutCertificates && len(o.AutoApprovedARNs) == 1
		}, ""},
		"AWS without its hub": {[]string{"--enabled-registration-drivers=awsirsa"}, nil,
			`--hub-cluster-arn, which the registration driver awsirsa needs: "" is not`},
		"a hub without AWS": {[]string{"--hub-cluster-arn=x"}, nil, "--hub-cluster-arn is for the registration driver awsirsa"},
		"a tag of the hub": {[]string{"--enabled-registration-drivers=awsirsa", "--hub-cluster-arn=arn:aws:eks:us-west-2:123456789012:cluster/hub1",
			"--aws-resource-tags=hub_cluster_name=x"}, nil, "the hub sets hub_cluster_name itself"},
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

// SC-02: the programs say which values of a flag they have, and which feature gates.
func TestRefusedFlags(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--feature-gates=Nonsense=true": `"Nonsense" is no feature gate here; use some of AddonManagement, `,
	} {
		command := newServerCommand()
		if err := command.ParseFlags([]string{arg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", arg, err, want)
		}
	}
}

// SC-02: the flags of a standalone hub that change nothing here.
func TestServerFlags(t *testing.T) {
	t.Parallel()
	command := newServerCommand()
	if err := command.ParseFlags([]string{"--self-management=false", "--self-management-cluster-name=hub",
		"--tls-min-version=VersionTLS12"}); err != nil {
		t.Error(err)
	}
	for _, command := range []*cobra.Command{newServerCommand(), newControllersCommand(), newWebhooksCommand()} {
		if err := command.ParseFlags([]string{"--feature-gates=DefaultClusterSet=true", "--kube-api-qps=50", "--kube-api-burst=100",
			"--tls-min-version=VersionTLS13", "--tls-cipher-suites=TLS_AES_128_GCM_SHA256"}); err != nil {
			t.Errorf("%s: %v", command.Name(), err)
		}
	}
}
