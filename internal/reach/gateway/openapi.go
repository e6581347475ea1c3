package gateway

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
)

// Definitions describes the kinds of the group for OpenAPI documents.
func Definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	text, boolean := spec.StringProperty, spec.BooleanProperty
	referred := func(name string) spec.Schema { return spec.Schema{SchemaProps: spec.SchemaProps{Ref: ref(name)}} }
	endpoint := object("Where the API server of the cluster is.", []string{"type"}, map[string]spec.Schema{
		"type": *text().WithDescription("Const or ClusterProxy."),
		"const": object("The address, for endpoints of type Const.", nil, map[string]spec.Schema{
			"address":   *text().WithDescription("The URL of the API server."),
			"caBundle":  *spec.StrFmtProperty("byte").WithDescription("The certificates that sign that of the API server, in PEM."),
			"insecure":  *boolean().WithDescription("Whether the certificate of the API server is not verified."),
			"proxy-url": *text().WithDescription("The forward proxy before the API server, without its password."),
		}),
	})
	credential := object("Of which kind the credential is.", []string{"type"}, map[string]spec.Schema{
		"type": *text().WithDescription("ServiceAccountToken, X509Certificate or Dynamic."),
	})
	access := object("How the cluster is reached, and as whom.", nil, map[string]spec.Schema{"endpoint": endpoint, "credential": credential})
	gateway := object("The way from the hub to the API server of a cluster.", nil, map[string]spec.Schema{
		"apiVersion": *text(), "kind": *text(), "metadata": referred(metav1.ObjectMeta{}.OpenAPIModelName()),
		"spec": object("What the Secret of the same name says.", []string{"access"}, map[string]spec.Schema{
			"provider": *text().WithDescription("Provider of the cluster, which nothing sets."), "access": access,
		}),
		"status": object("How the cluster is doing.", nil, map[string]spec.Schema{
			"healthy":       *boolean().WithDescription("Whether the API server answers."),
			"healthyReason": *text().WithDescription("What else there is to know, such as why it does not."),
		}),
	})
	virtual := object("A cluster that the hub knows, by a ClusterGateway or as a ManagedCluster.", nil, map[string]spec.Schema{
		"apiVersion": *text(), "kind": *text(), "metadata": referred(metav1.ObjectMeta{}.OpenAPIModelName()),
		"spec": object("What the hub knows of it.", nil, map[string]spec.Schema{
			"alias":           *text().WithDescription("Its name for people."),
			"accepted":        *boolean().WithDescription("Whether the hub deals with it."),
			"endpoint":        *text().WithDescription("The URL of its API server, where that is known."),
			"credential-type": *text().WithDescription("That of its ClusterGateway, ManagedCluster without one, or Internal for the hub itself."),
		}),
	})
	one, oneVirtual := gatewayv1alpha1.ClusterGateway{}.OpenAPIModelName(), gatewayv1alpha1.VirtualCluster{}.OpenAPIModelName()
	item, virtualItem := referred(one), referred(oneVirtual)
	return map[string]common.OpenAPIDefinition{
		one: {Schema: gateway, Dependencies: []string{metav1.ObjectMeta{}.OpenAPIModelName()}},
		gatewayv1alpha1.ClusterGatewayList{}.OpenAPIModelName(): {
			Schema: object("A list of ClusterGateways.", []string{"items"}, map[string]spec.Schema{
				"apiVersion": *text(), "kind": *text(), "metadata": referred(metav1.ListMeta{}.OpenAPIModelName()),
				"items": *spec.ArrayProperty(&item),
			}),
			Dependencies: []string{metav1.ListMeta{}.OpenAPIModelName(), one},
		},
		oneVirtual: {Schema: virtual, Dependencies: []string{metav1.ObjectMeta{}.OpenAPIModelName()}},
		gatewayv1alpha1.VirtualClusterList{}.OpenAPIModelName(): {
			Schema: object("A list of VirtualClusters.", []string{"items"}, map[string]spec.Schema{
				"apiVersion": *text(), "kind": *text(), "metadata": referred(metav1.ListMeta{}.OpenAPIModelName()),
				"items": *spec.ArrayProperty(&virtualItem),
			}),
			Dependencies: []string{metav1.ListMeta{}.OpenAPIModelName(), oneVirtual},
		},
	}
}

func object(description string, required []string, properties map[string]spec.Schema) spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{
		Description: description, Type: []string{"object"}, Required: required, Properties: properties,
	}}
}
