package install_test

const (
	hubARN     = "arn:aws:eks:us-west-2:123456789012:cluster/hub1"
	managedARN = "arn:aws:eks:us-west-2:210987654321:cluster/c1"
)
