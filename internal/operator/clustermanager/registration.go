package clustermanager

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/workload"
)

// registration is the registration controllers of a hub: how clusters join it and are imported.
type registration struct{ planned }

func (r registration) component() workload.Component {
	args := slices.Concat([]string{"/registration", "controller"}, r.registration.Flags())
	args = slices.Concat(args, r.driverFlags(), r.importFlags())
	if copied := r.labels(); len(copied) > 0 {
		args = append(args, "--labels="+labels.Set(copied).String())
	}
	component := r.controller(registrationController, r.Spec.RegistrationImagePullSpec, fleet.ServiceAccountRegistrationController, args)
	if servesGRPC(r.ClusterManager) {
		grpc(r).signWith(&component)
	}
	return component
}

// driverFlags say how clusters register, and whose are approved without an administrator.
func (r registration) driverFlags() (flags []string) {
	if drivers := r.drivers(); !slices.Equal(drivers, []string{string(operatorv1.RegistrationAuthTypeCSR)}) {
		flags = append(flags, "--enabled-registration-drivers="+strings.Join(drivers, ","))
	}
	flags = append(flags, r.awsFlags()...)
	if !r.registration.Enabled(featuregates.ManagedClusterAutoApproval) {
		return flags
	}
	return slices.Concat(flags, workload.ListFlag("--auto-approved-csr-users", r.approvedUsers()...),
		workload.ListFlag("--auto-approved-grpc-users", r.approvedGRPCUsers()...))
}

// importFlags say how clusters are imported.
func (r registration) importFlags() (flags []string) {
	if !r.registration.Enabled(featuregates.ClusterImporter) {
		return nil
	}
	if renderers, _ := r.renderers(); len(renderers) > 0 {
		flags = append(flags, "--cluster-import-renderers="+strings.Join(renderers, ","))
	}
	if r.agentImage != "" {
		flags = append(flags, "--cluster-import-agent-image="+r.agentImage)
	}
	return flags
}

// renderers are those of the spec that this version has, and the others.
func (r registration) renderers() (known, unknown []string) {
	configuration := registrationOf(r.ClusterManager).ImporterConfiguration
	if configuration == nil {
		return nil, nil
	}
	for _, name := range configuration.Renderers {
		if slices.Contains(fleet.ImportRenderers(), name) {
			known = append(known, name)
		} else {
			unknown = append(unknown, name)
		}
	}
	return known, unknown
}

// drivers are the registration drivers that this version has, out of those of the spec; by certificate request if there is none of them.
func (r registration) drivers() (drivers []string) {
	for _, driver := range supportedDrivers {
		if hasDriver(r.ClusterManager, driver) {
			drivers = append(drivers, string(driver))
		}
	}
	if len(drivers) == 0 {
		return []string{string(operatorv1.RegistrationAuthTypeCSR)}
	}
	return drivers
}

// supportedDrivers are those that this version has.
var supportedDrivers = []operatorv1.RegistrationAuthType{
	operatorv1.RegistrationAuthTypeCSR, operatorv1.RegistrationAuthTypeGRPC, operatorv1.RegistrationAuthTypeAWSIRSA,
}

// approvedGRPCUsers are those of the driver grpc whose clusters are approved without an administrator.
func (r registration) approvedGRPCUsers() (users []string) {
	for _, driver := range registrationOf(r.ClusterManager).RegistrationDrivers {
		if driver.AuthType == operatorv1.RegistrationAuthTypeGRPC && driver.GRPC != nil {
			users = append(users, driver.GRPC.AutoApprovedIdentities...)
		}
	}
	return users
}

// approvedUsers are those of the driver csr whose clusters are approved without an administrator.
func (r registration) approvedUsers() []string {
	configuration := registrationOf(r.ClusterManager)
	for _, driver := range configuration.RegistrationDrivers {
		if driver.AuthType == operatorv1.RegistrationAuthTypeCSR && driver.CSR != nil && len(driver.CSR.AutoApprovedIdentities) > 0 {
			return driver.CSR.AutoApprovedIdentities
		}
	}
	return configuration.AutoApproveUsers
}
