package objecthealth

func serviceHealth(o reading) Health {
	if o.text("spec", "type") == "LoadBalancer" && len(o.list("status", "loadBalancer", "ingress")) == 0 {
		return inProgress("the load balancer has no address yet")
	}
	return current("it is there")
}

func claimHealth(o reading) Health {
	switch o.text("status", "phase") {
	case "Bound":
		return current("the volume is bound")
	case "Lost":
		return failed("the volume is lost")
	}
	return inProgress("no volume is bound yet")
}

func namespaceHealth(o reading) Health {
	if o.text("status", "phase") == "Terminating" {
		return inProgress("the namespace is being deleted")
	}
	return current("it is there")
}

func definitionHealth(o reading) Health {
	if c := o.condition("NamesAccepted"); c.isFalse() {
		return failed("its names are not accepted: %s", c)
	}
	if !o.condition("Established").isTrue() {
		return inProgress("the kind is not served yet")
	}
	return current("the kind is served")
}

func apiServiceHealth(o reading) Health {
	if c := o.condition("Available"); !c.isTrue() {
		if !c.exists() {
			return inProgress("the API is not served yet")
		}
		return inProgress("the API is not served: %s", c)
	}
	return current("the API is served")
}

// autoscalerHealth never calls an autoscaler failed: right after its creation there are no metrics yet, and that looks the same
// as if there never will be.
func autoscalerHealth(o reading) Health {
	if c := o.condition("AbleToScale"); c.isFalse() {
		return inProgress("it cannot scale: %s", c)
	}
	if c := o.condition("ScalingActive"); c.isFalse() && c.reason != "ScalingDisabled" {
		return inProgress("it does not scale: %s", c)
	}
	return current("it scales")
}

func budgetHealth(o reading) Health {
	if c := o.condition("DisruptionAllowed"); c.isFalse() && c.reason == "SyncFailed" {
		return failed("%s", c)
	}
	return current("it is in force")
}
