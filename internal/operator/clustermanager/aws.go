package clustermanager

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/workload"
)

// awsOf is how clusters register by AWS IAM; nil if they do not.
func awsOf(cm *operatorv1.ClusterManager) *operatorv1.AwsIrsaConfig {
	for _, driver := range registrationOf(cm).RegistrationDrivers {
		if driver.AuthType != operatorv1.RegistrationAuthTypeAWSIRSA {
			continue
		}
		if driver.AwsIrsa == nil {
			return &operatorv1.AwsIrsaConfig{}
		}
		return driver.AwsIrsa
	}
	return nil
}

// validateAWS says what registration by AWS IAM lacks.
func validateAWS(cm *operatorv1.ClusterManager) error {
	aws := awsOf(cm)
	if aws == nil {
		return nil
	}
	path := field.NewPath("spec", "registrationConfiguration", "registrationDrivers").Key("authType=awsirsa").Child("awsirsa")
	if _, err := eks.Parse(aws.HubClusterARN); err != nil {
		return fmt.Errorf("%s: %w", path.Child("hubClusterArn"), err)
	}
	if _, err := eks.ParsePatterns(aws.AutoApprovedIdentities); err != nil {
		return fmt.Errorf("%s: %w", path.Child("autoApprovedIdentities"), err)
	}
	return nil
}

// awsFlags have the registration controllers register clusters by AWS IAM.
func (r registration) awsFlags() (flags []string) {
	aws := awsOf(r.ClusterManager)
	if aws == nil {
		return nil
	}
	flags = append(flags, "--hub-cluster-arn="+aws.HubClusterARN)
	if r.registration.Enabled(featuregates.ManagedClusterAutoApproval) {
		for _, pattern := range aws.AutoApprovedIdentities {
			flags = append(flags, "--auto-approved-arn-patterns="+pattern)
		}
	}
	for _, tag := range aws.Tags {
		flags = append(flags, workload.ListFlag("--aws-resource-tags", tag)...)
	}
	return flags
}

// annotateAWSRole gives the pods of the registration controllers the role by which they make those of clusters.
func (r registration) annotateAWSRole(objects []client.Object) {
	aws := awsOf(r.ClusterManager)
	if aws == nil {
		return
	}
	hub, err := eks.Parse(aws.HubClusterARN)
	if err != nil {
		return // the spec was refused
	}
	for _, object := range objects {
		account, ok := object.(*corev1.ServiceAccount)
		if ok && account.Name == fleet.ServiceAccountRegistrationController {
			metav1.SetMetaDataAnnotation(&account.ObjectMeta, fleet.AnnotationEKSRole, hub.IdentityCreatorARN())
		}
	}
}
