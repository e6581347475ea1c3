package crds

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

// CM-19 SC-18
func TestHub(t *testing.T) {
	t.Parallel()
	expectNames(t, Hub(),
		"addondeploymentconfigs.addon.open-cluster-management.io",
		"addonplacementscores.cluster.open-cluster-management.io",
		"addontemplates.addon.open-cluster-management.io",
		"clustergatewayconfigurations.proxy.open-cluster-management.io",
		"clustermanagementaddons.addon.open-cluster-management.io",
		"clustermanagers.operator.open-cluster-management.io",
		"clusterpermissions.rbac.open-cluster-management.io",
		"clusterprofiles.multicluster.x-k8s.io",
		"gitopsclusters.apps.open-cluster-management.io",
		"managedclusteraddons.addon.open-cluster-management.io",
		"managedclusters.cluster.open-cluster-management.io",
		"managedclustersetbindings.cluster.open-cluster-management.io",
		"managedclustersets.cluster.open-cluster-management.io",
		"managedserviceaccounts.authentication.open-cluster-management.io",
		"manifestworkreplicasets.work.open-cluster-management.io",
		"manifestworks.work.open-cluster-management.io",
		"multiclusterapplicationsetreports.apps.open-cluster-management.io",
		"placementdecisions.cluster.open-cluster-management.io",
		"placementdecisions.multicluster.x-k8s.io",
		"placements.cluster.open-cluster-management.io",
	)
}

// KL-23
func TestManagedCluster(t *testing.T) {
	t.Parallel()
	expectNames(t, ManagedCluster(),
		"appliedmanifestworks.work.open-cluster-management.io",
		"clusterclaims.cluster.open-cluster-management.io",
	)
	expectNames(t, ClusterProperties(), "clusterproperties.about.k8s.io")
}

func expectNames(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition, want ...string) {
	t.Helper()
	var got []string
	for _, crd := range crds {
		got = append(got, crd.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCallersGetTheirOwn(t *testing.T) {
	t.Parallel()
	Hub()[0].Spec.Group = "changed"
	if Hub()[0].Spec.Group == "changed" {
		t.Error("what one caller changed, another one gets")
	}
}

// Every file is a CRD that one of the lists has, or that of the agents' operator.
func TestEveryFileIsUsed(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, crd := range slices.Concat(Hub(), ManagedCluster(), ClusterProperties()) {
		listed[crd.Name] = true
	}
	for _, crd := range all(t) {
		if !listed[crd.Name] && crd.Name != "klusterlets.operator.open-cluster-management.io" {
			t.Errorf("%s is in neither list", crd.Name)
		}
	}
}

// WH-13
func TestConversion(t *testing.T) {
	t.Parallel()
	converted := []string{
		"clustermanagementaddons.addon.open-cluster-management.io",
		"managedclusteraddons.addon.open-cluster-management.io",
	}
	for _, crd := range Hub() {
		conversion := crd.Spec.Conversion
		if !slices.Contains(converted, crd.Name) {
			if conversion != nil && conversion.Strategy != apiextensionsv1.NoneConverter {
				t.Errorf("%s is converted by %s, want None", crd.Name, conversion.Strategy)
			}
			continue
		}
		if conversion == nil || conversion.Strategy != apiextensionsv1.WebhookConverter {
			t.Errorf("%s has the conversion %+v, want a webhook", crd.Name, conversion)
			continue
		}
		service := conversion.Webhook.ClientConfig.Service
		got := fmt.Sprintf("%s/%s:%d%s %v", service.Namespace, service.Name, *service.Port, *service.Path,
			conversion.Webhook.ConversionReviewVersions)
		if want := "open-cluster-management-hub/cluster-manager-addon-webhook:9443/convert [v1]"; got != want {
			t.Errorf("%s is converted by %s, want %s", crd.Name, got, want)
		}
	}
}

// An API server takes them: schemas are structural, defaults are valid, and no rule in CEL costs too much.
func TestValid(t *testing.T) {
	t.Parallel()
	for _, crd := range all(t) {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		internal := new(apiextensions.CustomResourceDefinition)
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
			t.Fatal(err)
		}
		for _, problem := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
			t.Errorf("%s: %v", crd.Name, problem)
		}
	}
}

// Everything that reads an object parses the quantities in it, controllers and clients too, and one of a few characters can take minutes.
// So the schema keeps such quantities out, with the bounds that all else has.
func TestQuantitiesAreBounded(t *testing.T) {
	t.Parallel()
	found := 0
	for _, crd := range all(t) {
		for _, version := range crd.Spec.Versions {
			for path, schema := range quantities(crd.Name+" "+version.Name, version.Schema.OpenAPIV3Schema) {
				found++
				expectBoundedQuantity(t, path, schema)
			}
		}
	}
	// Two of a ManagedCluster, a Klusterlet and a ClusterManager, and of either version of an AddOnDeploymentConfig
	if found != 10 {
		t.Errorf("there are %d quantities, want 10", found)
	}
}

func expectBoundedQuantity(t *testing.T, path string, schema *apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	internal := new(apiextensions.JSONSchemaProps)
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil); err != nil {
		t.Fatal(err)
	}
	validator, _, err := schemavalidation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []any{
		int64(5), "0", "500m", "5Gi", "1E", "2Ei", ".5", "1e3", "+1.5e+6", "-1E-006", "1e100", "1e-100", "9223372036854775807999999999n",
		strings.Repeat("1", 64),
	} {
		if errs := schemavalidation.ValidateCustomResource(nil, value, validator); len(errs) > 0 {
			t.Errorf("%s refuses %v: %v", path, value, errs)
		}
		if err := budget.Quantity(fmt.Sprint(value)); err != nil {
			t.Errorf("beyond the schema: %v", err)
		}
	}
	for _, value := range []string{
		"1e101", "1E-101", "1e+0101", "1e-10000000", "1e-300000000", "1000000000000000000001e3000000", strings.Repeat("1", 65),
	} {
		if errs := schemavalidation.ValidateCustomResource(nil, value, validator); len(errs) == 0 {
			t.Errorf("%s takes %s", path, value)
		}
		if budget.Quantity(value) == nil {
			t.Errorf("only the schema bounds %s", value)
		}
	}
}

// quantities are the schemas of all quantities, by where they are.
func quantities(path string, schema *apiextensionsv1.JSONSchemaProps) map[string]*apiextensionsv1.JSONSchemaProps {
	found := map[string]*apiextensionsv1.JSONSchemaProps{}
	if schema.XIntOrString && strings.Contains(schema.Pattern, "numkMGTPE") {
		found[path] = schema
	}
	if schema.Items != nil {
		maps.Copy(found, quantities(path+"[]", schema.Items.Schema))
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		maps.Copy(found, quantities(path+"{}", schema.AdditionalProperties.Schema))
	}
	for name := range schema.Properties {
		property := schema.Properties[name]
		maps.Copy(found, quantities(path+"."+name, &property))
	}
	return found
}

// all decodes every file.
func all(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return decode(names...)
}

// The defaults that clients rely on.
func TestDefaults(t *testing.T) {
	t.Parallel()
	crds := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, crd := range all(t) {
		crds[crd.Spec.Names.Kind] = crd
	}
	for _, test := range []struct{ kind, version, path, want string }{
		{"ManagedCluster", "v1", "spec.leaseDurationSeconds", `60`},
		{"ManagedClusterSet", "v1beta2", "spec", `{"clusterSelector":{"selectorType":"ExclusiveClusterSetLabel"}}`},
		{"ManagedClusterSet", "v1beta2", "spec.clusterSelector.selectorType", `"ExclusiveClusterSetLabel"`},
		{"Placement", "v1beta1", "spec.prioritizerPolicy.mode", `"Additive"`},
		{"Placement", "v1beta1", "spec.prioritizerPolicy.configurations.weight", `1`},
		{"Placement", "v1beta1", "spec.prioritizerPolicy.configurations.scoreCoordinate.type", `"BuiltIn"`},
		{"Placement", "v1beta1", "spec.tolerations.operator", `"Equal"`},
		{"Placement", "v1beta1", "spec.decisionStrategy.groupStrategy.clustersPerDecisionGroup", `"100%"`},
		{"Placement", "v1beta1", "spec.sortBy", `"ClusterName"`},
		{"Placement", "v1beta1", "spec.scoreRateLimit", `"1m"`},
		{"ManifestWorkReplicaSet", "v1alpha1", "spec.cascadeDeletionPolicy", `"Background"`},
		{"ManifestWorkReplicaSet", "v1alpha1", "spec.placementRefs.rolloutStrategy.type", `"All"`},
		{"ManifestWorkReplicaSet", "v1alpha1", "spec.placementRefs.rolloutStrategy.all.minSuccessTime", `"0"`},
		{"ManifestWorkReplicaSet", "v1alpha1", "spec.placementRefs.rolloutStrategy.progressive.progressDeadline", `"None"`},
		{"ManifestWorkReplicaSet", "v1alpha1", "spec.placementRefs.rolloutStrategy.progressivePerGroup.maxFailures", `0`},
		{"ManifestWork", "v1", "spec.deleteOption.propagationPolicy", `"Foreground"`},
		{"ManifestWork", "v1", "spec.manifestConfigs.feedbackScrapeType", `"Poll"`},
		{"ManifestWork", "v1", "spec.manifestConfigs.updateStrategy.type", `"Update"`},
		{"ManifestWork", "v1", "spec.manifestConfigs.updateStrategy.serverSideApply.fieldManager", `"work-agent"`},
		{"ManifestWork", "v1", "spec.manifestConfigs.updateStrategy.serverSideApply.ignoreFields.condition", `"OnSpokePresent"`},
		{"ClusterManagementAddOn", "v1alpha1", "spec.installStrategy", `{"type":"Manual"}`},
		{"ClusterManagementAddOn", "v1alpha1", "spec.installStrategy.placements.rolloutStrategy", `{"type":"All"}`},
		{"ClusterManagementAddOn", "v1beta1", "spec.installStrategy.type", `"Manual"`},
		{"ManagedClusterAddOn", "v1alpha1", "spec.installNamespace", `"open-cluster-management-agent-addon"`},
		{"ManagedClusterAddOn", "v1alpha1", "status.healthCheck.mode", `"Lease"`},
		{"AddOnDeploymentConfig", "v1alpha1", "spec.agentInstallNamespace", `"open-cluster-management-agent-addon"`},
		{"ClusterManager", "v1", "spec.deployOption.mode", `"Default"`},
		{"ClusterManager", "v1", "spec.deployOption.default.workWebhookConfiguration.bindConfiguration.healthProbePort", `8000`},
		{"Klusterlet", "v1", "spec.registrationConfiguration.clusterClaimConfiguration.maxCustomClusterClaims", `20`},
		{"Klusterlet", "v1", "spec.registrationConfiguration.bootstrapKubeConfigs.localSecretsConfig.hubConnectionTimeoutSeconds", `600`},
	} {
		schema := find(t, crds[test.kind], test.version, test.path)
		if schema.Default == nil || string(schema.Default.Raw) != test.want {
			t.Errorf("%s %s: the default of %s is %s, want %s", test.kind, test.version, test.path, schema.Default, test.want)
		}
	}
}

// Names, scope, columns and subresources of ClusterProperty.
func TestClusterProperty(t *testing.T) {
	t.Parallel()
	crd := ClusterProperties()[0]
	version := crd.Spec.Versions[0]
	if crd.Spec.Scope != apiextensionsv1.ClusterScoped || version.Name != "v1alpha1" || version.Subresources != nil &&
		version.Subresources.Status != nil {
		t.Errorf("scope %s, version %s, subresources %+v", crd.Spec.Scope, version.Name, version.Subresources)
	}
	var columns []string
	for _, column := range version.AdditionalPrinterColumns {
		columns = append(columns, column.Name)
	}
	if want := []string{"value", "age"}; !slices.Equal(columns, want) {
		t.Errorf("columns %q, want %q", columns, want)
	}
	if crd.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation] == "" {
		t.Error("an API server takes no kind of group about.k8s.io without the annotation")
	}
}

// find goes down to a field, through lists.
func find(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, version, path string) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	for _, v := range crd.Spec.Versions {
		if v.Name != version {
			continue
		}
		schema := *v.Schema.OpenAPIV3Schema
		for field := range strings.SplitSeq(path, ".") {
			if schema.Items != nil {
				schema = *schema.Items.Schema
			}
			next, ok := schema.Properties[field]
			if !ok {
				t.Fatalf("%s %s has no field %s of %s", crd.Name, version, field, path)
			}
			schema = next
		}
		return schema
	}
	t.Fatalf("%s has no version %s", crd.Name, version)
	return apiextensionsv1.JSONSchemaProps{}
}

// Users of kubectl explain find a text for every field.
func TestEveryFieldIsExplained(t *testing.T) {
	t.Parallel()
	for _, crd := range all(t) {
		for _, version := range crd.Spec.Versions {
			schema := version.Schema.OpenAPIV3Schema
			if schema.Description == "" {
				t.Errorf("%s %s has no description", crd.Name, version.Name)
			}
			delete(schema.Properties, "metadata")
			expectDescriptions(t, crd.Name+" "+version.Name, schema)
		}
	}
}

func expectDescriptions(t *testing.T, path string, schema *apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if schema.Items != nil {
		schema = schema.Items.Schema
	}
	for name, property := range schema.Properties {
		if property.Description == "" {
			t.Errorf("%s.%s has no description", path, name)
		}
		expectDescriptions(t, path+"."+name, &property)
	}
}
