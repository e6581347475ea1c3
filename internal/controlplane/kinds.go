package controlplane

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// awaitInstalled is awaitServed for all definitions that are there, of whomever: controllers that empty namespaces and follow owners must
// not take a kind that is not published yet for one that there is not. What is not published for long, they go without.
func awaitInstalled(ctx context.Context, config *rest.Config) error {
	definitions, err := apply.NewCRDClient(config)
	if err != nil {
		return err
	}
	apis, err := apiregistrationclient.NewForConfig(config)
	if err != nil {
		return err
	}
	installed, err := findInstalled(ctx, definitions, apis)
	if err != nil {
		return err
	}
	err = awaitServed(ctx, config, installed)
	if wait.Interrupted(err) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Kubernetes controllers start without some kinds")
		return nil
	}
	return err
}

// findInstalled tries until it knows them, or ctx ends.
func findInstalled(ctx context.Context, definitions client.Reader, apis apiregistrationclient.Interface) (
	installed []*apiextensionsv1.CustomResourceDefinition, err error) {
	var last problem
	err = retry.Until(ctx, func(ctx context.Context) (bool, error) {
		found, err := listInstalled(ctx, definitions, apis)
		if last.report(err) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Kubernetes controllers wait until it is known which kinds there are; trying again")
		}
		installed = found
		return err == nil, nil
	})
	return installed, err
}

// listInstalled are the definitions that are established. Versions that another server serves, as an APIService says, count as not served.
func listInstalled(ctx context.Context, definitions client.Reader, apis apiregistrationclient.Interface) (
	[]*apiextensionsv1.CustomResourceDefinition, error) {
	all := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := definitions.List(ctx, all); err != nil {
		return nil, fmt.Errorf("list CRDs: %w", err)
	}
	services, err := apis.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list APIServices: %w", err)
	}
	elsewhere := map[schema.GroupVersion]bool{}
	for _, api := range services.Items {
		elsewhere[schema.GroupVersion{Group: api.Spec.Group, Version: api.Spec.Version}] = api.Spec.Service != nil
	}
	var established []*apiextensionsv1.CustomResourceDefinition
	for i := range all.Items {
		crd := &all.Items[i]
		if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			continue
		}
		for j := range crd.Spec.Versions {
			version := &crd.Spec.Versions[j]
			version.Served = version.Served && !elsewhere[schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name}]
		}
		established = append(established, crd)
	}
	return established, nil
}
