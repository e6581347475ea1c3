package klusterlet

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
)

// KL-06, KL-13, KL-17, KL-18, O6: what cannot be installed is refused with the field, its value, and what would be right.
func TestValidate(t *testing.T) {
	t.Parallel()
	registration := func(k *operatorv1.Klusterlet) *operatorv1.RegistrationConfiguration {
		k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{}
		return k.Spec.RegistrationConfiguration
	}
	work := func(k *operatorv1.Klusterlet) *operatorv1.WorkAgentConfiguration {
		k.Spec.WorkConfiguration = &operatorv1.WorkAgentConfiguration{}
		return k.Spec.WorkConfiguration
	}
	secrets := func(k *operatorv1.Klusterlet, names ...string) {
		configs := &registration(k).BootstrapKubeConfigs
		configs.Type, configs.LocalSecrets = operatorv1.BootstrapKubeConfigsLocalSecrets, &operatorv1.LocalSecretsConfig{}
		for _, name := range names {
			configs.LocalSecrets.KubeConfigSecrets = append(configs.LocalSecrets.KubeConfigSecrets, operatorv1.KubeConfigSecret{Name: name})
		}
	}
	for want, change := range map[string]func(*operatorv1.Klusterlet){
		// As the chart names the Klusterlet of a hosted cluster whose name is a UUID.
		"": func(k *operatorv1.Klusterlet) { k.Name = "klusterlet-2f1c7a9e-6f0e-4f5b-9c1d-0a8b7c6d5e4f" },
		`spec.deployOption.mode is "Detached": it must be Default, Singleton, Hosted or SingletonHosted`: func(k *operatorv1.Klusterlet) {
			k.Spec.DeployOption.Mode = "Detached"
		},
		`metadata.name is "a.b": agents of a hosted Klusterlet run in the namespace of its name, so it must have`: func(k *operatorv1.Klusterlet) {
			k.Name, k.Spec.DeployOption.Mode = "a.b", operatorv1.InstallModeSingletonHosted
		},
		`it must have at most 63 characters`: func(k *operatorv1.Klusterlet) { k.Name = strings.Repeat("a", 64) },
		`spec.namespace is "open-cluster-management-agent-addon": the namespace has another use`: func(k *operatorv1.Klusterlet) {
			k.Spec.Namespace = "open-cluster-management-agent-addon"
		},
		`metadata.name is "open-cluster-management-hub": agents of a hosted ` +
			`Klusterlet run in the namespace of its name`: func(k *operatorv1.Klusterlet) {
			k.Name, k.Spec.DeployOption.Mode = "open-cluster-management-hub", operatorv1.InstallModeHosted
		},
		`spec.externalServerURLs[1].url is "http://b": it must be an https URL`: func(k *operatorv1.Klusterlet) {
			k.Spec.ExternalServerURLs = []operatorv1.ServerURL{{URL: "https://a"}, {URL: "http://b"}}
		},
		`spec.externalServerURLs[0].caBundle has no certificates`: func(k *operatorv1.Klusterlet) {
			k.Spec.ExternalServerURLs = []operatorv1.ServerURL{{URL: "https://a", CABundle: []byte("x")}}
		},
		`spec.registrationConfiguration.registrationDriver.authType is "spiffe": ` +
			`this version does not have it; set it to csr, grpc or awsirsa`: func(k *operatorv1.Klusterlet) {
			registration(k).RegistrationDriver.AuthType = "spiffe"
		},
		`spec.registrationConfiguration.registrationDriver.awsIrsa is empty`: func(k *operatorv1.Klusterlet) {
			registration(k).RegistrationDriver.AuthType = operatorv1.RegistrationAuthTypeAWSIRSA
		},
		`spec.registrationConfiguration.registrationDriver.awsIrsa.managedClusterArn: "x" is not the ARN`: func(k *operatorv1.Klusterlet) {
			withAWS(k)
			k.Spec.RegistrationConfiguration.RegistrationDriver.AwsIrsa.ManagedClusterARN = "x"
		},
		`spec.registrationConfiguration.bootstrapKubeConfigs.type is "LocalSecrets": hubClusterArn is of one hub`: func(k *operatorv1.Klusterlet) {
			withAWS(k)
			k.Spec.RegistrationConfiguration.BootstrapKubeConfigs = operatorv1.BootstrapKubeConfigs{
				Type:         operatorv1.BootstrapKubeConfigsLocalSecrets,
				LocalSecrets: &operatorv1.LocalSecretsConfig{KubeConfigSecrets: []operatorv1.KubeConfigSecret{{Name: "a"}, {Name: "b"}}}}
		},
		`spec.registrationConfiguration.clientCertExpirationSeconds is 599: ` +
			`it must be 0, which leaves it to the hub, or at least 600`: func(k *operatorv1.Klusterlet) {
			registration(k).ClientCertExpirationSeconds = 599
		},
		`` +
			`addOnKubeClientRegistrationDriver.token.expirationSeconds is 599: it must be 0`: func(k *operatorv1.Klusterlet) {
			registration(k).AddOnKubeClientRegistrationDriver = &operatorv1.AddOnRegistrationDriver{
				Token: &operatorv1.AddOnTokenConfiguration{ExpirationSeconds: 599}}
		},
		`` +
			`clusterClaimConfiguration.maxCustomClusterClaims is -1: it must not be negative`: func(k *operatorv1.Klusterlet) {
			registration(k).ClusterClaimConfiguration = &operatorv1.ClusterClaimConfiguration{MaxCustomClusterClaims: -1}
		},
		`` +
			`clusterAnnotations[agent.open-cluster-management.io/a] is "b,c": it must have no commas`: func(k *operatorv1.Klusterlet) {
			registration(k).ClusterAnnotations = map[string]string{"agent.open-cluster-management.io/a": "b,c"}
		},
		`spec.registrationConfiguration.clusterLabels: Invalid value: "-"`: func(k *operatorv1.Klusterlet) {
			registration(k).ClusterLabels = map[string]string{"a": "-"}
		},
		`kubeConfigSecrets must name at least two Secrets when the type is LocalSecrets`: func(k *operatorv1.Klusterlet) { secrets(k, "a") },
		`kubeConfigSecrets[1].name is "a": another entry has the same name`:              func(k *operatorv1.Klusterlet) { secrets(k, "a", "a") },
		`kubeConfigSecrets[1].name is "../b": it must be the name of a ` +
			`Secret`: func(k *operatorv1.Klusterlet) { secrets(k, "a", "../b") },
		`kubeConfigSecrets[1].name is "hub-kubeconfig": the Secret would be mounted in /spoke/hub-kubeconfig, where ` +
			`the agent has other files; choose another name`: func(k *operatorv1.Klusterlet) { secrets(k, "a", "hub-kubeconfig") },
		`kubeConfigSecrets[0].name is "config": the Secret would be mounted in /spoke/config`: func(k *operatorv1.Klusterlet) {
			secrets(k, "config", "b")
			k.Spec.DeployOption.Mode = operatorv1.InstallModeHosted
		},
		`kubeConfigSecrets[1].name is "external-server-cas": the Secret would be mounted in`: func(k *operatorv1.Klusterlet) {
			everything(k)
			secrets(k, "a", "external-server-cas")
		},
		`bootstrapKubeConfigs.type is "LocalSecrets": it needs the feature gate MultipleHubs`: func(k *operatorv1.Klusterlet) {
			secrets(k, "a", "b")
			k.Spec.RegistrationConfiguration.FeatureGates = []operatorv1.FeatureGate{
				{Feature: "MultipleHubs", Mode: operatorv1.FeatureGateModeTypeDisable}}
		},
		`spec.workConfiguration.statusSyncInterval is "4s": it must be a duration from 5s to 1h`: func(k *operatorv1.Klusterlet) {
			work(k).StatusSyncInterval = "4s"
		},
		`spec.workConfiguration.appliedManifestWorkEvictionGracePeriod is ` +
			`"1d": it must be a duration, such as 60m`: func(k *operatorv1.Klusterlet) {
			work(k).AppliedManifestWorkEvictionGracePeriod = "1d"
		},
	} {
		k := klusterletWith(operatorv1.InstallModeDefault)
		change(k)
		switch err := validate(k); {
		case want == "" && err != nil:
			t.Errorf("a valid Klusterlet: %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// KL-17: a name is refused only where the agent has other files in the folder of that name.
func TestFoldersOfSecrets(t *testing.T) {
	t.Parallel()
	k := klusterletWith(operatorv1.InstallModeSingleton)
	k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{BootstrapKubeConfigs: operatorv1.BootstrapKubeConfigs{
		Type: operatorv1.BootstrapKubeConfigsLocalSecrets, LocalSecrets: &operatorv1.LocalSecretsConfig{
			KubeConfigSecrets: []operatorv1.KubeConfigSecret{{Name: "bootstrap"}, {Name: "config"}, {Name: "external-server-cas"}}}}}
	if err := validate(k); err != nil {
		t.Error(err)
	}
}

// KL-02: the name of a Klusterlet may have dots, unless it is that of a namespace. What is named after it may have such a name.
func TestNameWithDots(t *testing.T) {
	t.Parallel()
	for _, mode := range []operatorv1.InstallMode{operatorv1.InstallModeDefault, operatorv1.InstallModeSingleton} {
		k := klusterletWith(mode)
		everything(k)
		k.Name, k.Spec.ExternalServerURLs = "a.b", nil
		if err := validate(k); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		p := planFor(layoutOf(k), allInputs)
		for _, object := range slices.Concat(p.shared, p.managed, p.onManagement()) {
			problems := validation.IsDNS1123Subdomain(strings.ReplaceAll(object.GetName(), ":", ".")) // roles have colons
			if _, isNamespace := object.(*corev1.Namespace); isNamespace {
				problems = validation.IsDNS1123Label(object.GetName())
			}
			for _, value := range object.GetLabels() {
				problems = append(problems, validation.IsValidLabelValue(value)...)
			}
			if len(problems) > 0 {
				t.Errorf("%s: %T %s with labels %v: %v", mode, object, object.GetName(), object.GetLabels(), problems)
			}
		}
	}
}

// KL-09: clients that do not know the address of the cluster write an empty one, which is no address.
func TestServersWithoutURL(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		servers []operatorv1.ServerURL
		want    []string
	}{
		"none":                       {nil, nil},
		"an empty one":               {[]operatorv1.ServerURL{{}}, nil},
		"an empty one with a bundle": {[]operatorv1.ServerURL{{CABundle: []byte("x")}}, nil},
		"one among others": {[]operatorv1.ServerURL{{}, {URL: "https://a"}, {}},
			[]string{"--spoke-external-server-urls=https://a"}},
		"two after an empty one": {[]operatorv1.ServerURL{{}, {URL: "https://a"}, {URL: "https://b"}},
			[]string{"--spoke-external-server-urls=https://a", "--spoke-external-server-urls=https://b"}},
	} {
		k := klusterletWith(operatorv1.InstallModeDefault)
		k.Spec.ExternalServerURLs = test.servers
		if err := validate(k); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		l := layoutOf(k)
		flags := slices.DeleteFunc(l.registrationFlags(), func(flag string) bool { return !strings.HasPrefix(flag, "--spoke-external") })
		if !slices.Equal(flags, test.want) {
			t.Errorf("%s: %v, want %v", name, flags, test.want)
		}
	}
}
