package klusterlet

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/operator/workload"
)

// awsCLIDir is where the pods of agents that register by AWS IAM have the AWS command line.
const awsCLIDir = "/awscli"

// DefaultAWSCLIImage is the image with the AWS command line.
const DefaultAWSCLIImage = "amazon/aws-cli:latest"

// validateAWS says what registration by AWS IAM lacks.
func validateAWS(path *field.Path, registration operatorv1.RegistrationConfiguration) error {
	aws := registration.RegistrationDriver.AwsIrsa
	if aws == nil {
		return fmt.Errorf("%s is empty: it must have the ARNs of the hub and of this cluster, as authType is %s",
			path.Child("registrationDriver", "awsIrsa"), operatorv1.RegistrationAuthTypeAWSIRSA)
	}
	var problems []error
	for _, arn := range []struct{ field, value string }{{"hubClusterArn", aws.HubClusterARN}, {"managedClusterArn", aws.ManagedClusterARN}} {
		if _, err := eks.Parse(arn.value); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", path.Child("registrationDriver", "awsIrsa", arn.field), err))
		}
	}
	if registration.BootstrapKubeConfigs.Type == operatorv1.BootstrapKubeConfigsLocalSecrets {
		problems = append(problems, invalid(path.Child("bootstrapKubeConfigs", "type"), string(registration.BootstrapKubeConfigs.Type),
			"hubClusterArn is of one hub, and this is for several; leave it out"))
	}
	return errors.Join(problems...)
}

// byAWS reports whether the agent registers by AWS IAM.
func (l layout) byAWS() bool {
	return registrationOf(l.klusterlet).RegistrationDriver.AuthType == operatorv1.RegistrationAuthTypeAWSIRSA
}

// aws are the two clusters in AWS; nil if the agent does not register by AWS IAM.
func (l layout) aws() *eks.Pair {
	driver := registrationOf(l.klusterlet).RegistrationDriver
	if !l.byAWS() || driver.AwsIrsa == nil {
		return nil
	}
	pair, err := eks.ParsePair(driver.AwsIrsa.HubClusterARN, driver.AwsIrsa.ManagedClusterARN)
	if err != nil {
		return nil // the spec was refused
	}
	return &pair
}

// awsFlags have the agent register by AWS IAM.
func (l layout) awsFlags() []string {
	pair := l.aws()
	if pair == nil {
		return nil
	}
	return []string{"--registration-auth=" + string(operatorv1.RegistrationAuthTypeAWSIRSA), "--hub-cluster-arn=" + pair.Hub.ARN(),
		"--managed-cluster-arn=" + pair.Managed.ARN(), "--managed-cluster-role-suffix=" + pair.Suffix()}
}

// mountAWSCLI gives a component the AWS command line, which makes its tokens for the hub, out of an image that has it. An agent in an
// image in which it does not run makes them itself.
func (l layout) mountAWSCLI(c *workload.Component, in inputs) {
	if l.aws() == nil || in.awsCLIImage == "" {
		return
	}
	folder := workload.Volume{Name: "awscli", Path: awsCLIDir, Source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	restricted := workload.Restricted()
	restricted.RunAsUser = ptr.To(int64(65532)) // the user of the image is root
	c.InitContainers = append(c.InitContainers, corev1.Container{
		Name: "copy-aws-cli", Image: in.awsCLIImage, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         []string{"cp", "-r", "/usr/local/aws-cli/v2/current/dist", awsCLIDir},
		SecurityContext: restricted,
		VolumeMounts:    []corev1.VolumeMount{{Name: folder.Name, MountPath: awsCLIDir}},
	})
	c.Volumes = append(c.Volumes, folder)
	c.Env = append(c.Env, corev1.EnvVar{Name: "PATH",
		Value: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + awsCLIDir + "/dist"})
}
