package v1

// ManifestConfigOption tunes the objects of a ManifestWork that resourceIdentifier names.
type ManifestConfigOption struct {
	// resourceIdentifier names the objects. The character * in name and namespace stands for any characters.
	// +required
	ResourceIdentifier ResourceIdentifier `json:"resourceIdentifier"`

	// feedbackRules pick the fields to report in statusFeedback.
	// +optional
	FeedbackRules []FeedbackRule `json:"feedbackRules,omitempty"`

	// feedbackScrapeType is how the original agents follow the fields: Poll or Watch. Capstan's agent watches
	// them either way.
	// +optional
	// +kubebuilder:default=Poll
	FeedbackScrapeType FeedbackScrapeType `json:"feedbackScrapeType,omitempty"`

	// updateStrategy is how to write the objects. Without it they are updated as by the type Update.
	// +optional
	UpdateStrategy *UpdateStrategy `json:"updateStrategy,omitempty"`

	// conditionRules derive conditions, such as Complete, from the objects.
	// +optional
	// +listType=map
	// +listMapKey=condition
	ConditionRules []ConditionRule `json:"conditionRules,omitempty"`
}

// FeedbackScrapeType is how fields of objects are followed.
//
// +kubebuilder:validation:Enum=Poll;Watch
type FeedbackScrapeType string

const (
	// FeedbackPollType reads the objects every so often.
	FeedbackPollType FeedbackScrapeType = "Poll"
	// FeedbackWatchType watches the objects.
	FeedbackWatchType FeedbackScrapeType = "Watch"
)

// UpdateStrategy is how to write objects that exist already.
type UpdateStrategy struct {
	// type: Update replaces what differs, CreateOnly writes an object only when it is missing, ServerSideApply
	// owns the fields of the manifest and leaves the others, ReadOnly writes nothing and only reports.
	// +required
	// +kubebuilder:default=Update
	Type UpdateStrategyType `json:"type"`

	// serverSideApply tunes the type ServerSideApply.
	// +optional
	ServerSideApply *ServerSideApplyConfig `json:"serverSideApply,omitempty"`
}

// UpdateStrategyType is a way to write objects.
//
// +kubebuilder:validation:Enum=Update;CreateOnly;ServerSideApply;ReadOnly
type UpdateStrategyType string

const (
	// UpdateStrategyTypeUpdate replaces what differs from the manifest.
	UpdateStrategyTypeUpdate UpdateStrategyType = "Update"
	// UpdateStrategyTypeCreateOnly writes an object only when it is missing.
	UpdateStrategyTypeCreateOnly UpdateStrategyType = "CreateOnly"
	// UpdateStrategyTypeServerSideApply owns the fields of the manifest through server-side apply.
	UpdateStrategyTypeServerSideApply UpdateStrategyType = "ServerSideApply"
	// UpdateStrategyTypeReadOnly writes nothing; the object is reported on, not owned.
	UpdateStrategyTypeReadOnly UpdateStrategyType = "ReadOnly"
)

// ServerSideApplyConfig tunes server-side apply.
type ServerSideApplyConfig struct {
	// force takes fields over from other managers. Without it a conflict is reported in the condition Applied.
	// +optional
	Force bool `json:"force,omitempty"`

	// fieldManager is the name under which fields are owned. It must begin with work-agent.
	// +optional
	// +kubebuilder:default=work-agent
	// +kubebuilder:validation:Pattern=`^work-agent`
	FieldManager string `json:"fieldManager,omitempty"`

	// ignoreFields are fields that others on the cluster may change without being overwritten.
	// +optional
	// +listType=map
	// +listMapKey=condition
	IgnoreFields []IgnoreField `json:"ignoreFields,omitempty"`
}

// IgnoreField is fields to leave alone, and when.
type IgnoreField struct {
	// condition: OnSpokePresent leaves the fields alone once the object exists, OnSpokeChange leaves them alone
	// while only the cluster, and not the manifest, changes them.
	// +required
	// +kubebuilder:default=OnSpokePresent
	Condition IgnoreFieldsCondition `json:"condition"`

	// jsonPaths name the fields, such as .spec.replicas.
	// +optional
	JSONPaths []string `json:"jsonPaths,omitempty"`

	// jsonPointers name the fields as RFC 6901 does, such as /spec/replicas.
	// +optional
	JSONPointers []string `json:"jsonPointers,omitempty"`

	// jqPathExpressions name the fields as jq does, such as
	// .spec.template.spec.containers[] | select(.name == "proxy").
	// +optional
	JQPathExpressions []string `json:"jqPathExpressions,omitempty"`
}

// IgnoreFieldsCondition is when fields are left alone.
//
// +kubebuilder:validation:Enum=OnSpokePresent;OnSpokeChange
type IgnoreFieldsCondition string

const (
	// IgnoreFieldsConditionOnSpokePresent leaves the fields alone once the object exists.
	IgnoreFieldsConditionOnSpokePresent IgnoreFieldsCondition = "OnSpokePresent"
	// IgnoreFieldsConditionOnSpokeChange leaves the fields alone until the manifest changes.
	IgnoreFieldsConditionOnSpokeChange IgnoreFieldsCondition = "OnSpokeChange"
)

// ConditionRule derives a condition from an object.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'CEL' || self.condition != \"\"",message="Condition is required for CEL rules"
type ConditionRule struct {
	// condition is the type of the condition to set, such as Complete. Rules of type CEL must name one.
	// +required
	Condition string `json:"condition"`

	// type: WellKnownConditions knows when Jobs and Pods are Complete, CEL evaluates celExpressions.
	// +required
	Type ConditionRuleType `json:"type"`

	// celExpressions are ANDed: the condition is True when all of them are. The variable object is the object
	// on the cluster; hasConditions(object.status) tells whether it has conditions.
	// +optional
	CelExpressions []string `json:"celExpressions,omitempty"`

	// message of the condition. Empty means one that says whether the rule holds.
	// +optional
	Message string `json:"message,omitempty"`

	// messageExpression is a CEL expression for the message, with the variables object and result. It takes
	// precedence over message.
	// +optional
	MessageExpression string `json:"messageExpression,omitempty"`
}

// ConditionRuleType is a way to derive a condition.
//
// +kubebuilder:validation:Enum=WellKnownConditions;CEL
type ConditionRuleType string

const (
	// WellKnownConditionsType uses what is known of the kind.
	WellKnownConditionsType ConditionRuleType = "WellKnownConditions"
	// CelConditionExpressionsType evaluates CEL expressions.
	CelConditionExpressionsType ConditionRuleType = "CEL"
)

// ManifestComplete is the type of the condition by which objects and ManifestWorks count as finished. A finished
// ManifestWork is not applied again.
const ManifestComplete = "Complete"

// FeedbackRule picks fields to report.
type FeedbackRule struct {
	// type: WellKnownStatus reports what matters of the kinds of Kubernetes, such as Deployments and Jobs, JSONPaths reports
	// the fields of jsonPaths.
	// +required
	Type FeedBackType `json:"type"`

	// jsonPaths name the fields to report, for the type JSONPaths.
	// +optional
	// +listType=map
	// +listMapKey=name
	JSONPaths []JSONPath `json:"jsonPaths,omitempty"`
}

// FeedBackType is a way to pick fields.
//
// +kubebuilder:validation:Enum=WellKnownStatus;JSONPaths
type FeedBackType string

const (
	// WellKnownStatusType reports what matters of well-known kinds.
	WellKnownStatusType FeedBackType = "WellKnownStatus"
	// JSONPathsType reports the fields of JSON paths.
	JSONPathsType FeedBackType = "JSONPaths"
)

// JSONPath is one field to report.
type JSONPath struct {
	// name under which the value is reported.
	// +required
	Name string `json:"name"`

	// version of the object to read the path from, such as v1. Empty means that of the manifest.
	// +optional
	Version string `json:"version,omitempty"`

	// path of the field in the object, such as .status.readyReplicas.
	// +required
	Path string `json:"path"`
}

// StatusFeedbackResult is the fields reported of an object.
type StatusFeedbackResult struct {
	// values has one entry for each field that was found.
	// +optional
	// +listType=map
	// +listMapKey=name
	Values []FeedbackValue `json:"values,omitempty"`
}

// FeedbackValue is one reported field.
type FeedbackValue struct {
	// name of the value: that of its JSON path, or one of the well-known status.
	// +required
	Name string `json:"name"`

	// fieldValue is the value.
	// +required
	Value FieldValue `json:"fieldValue"`
}

// FieldValue is a value with its type. Only the field of its type is set.
type FieldValue struct {
	// type of the value.
	// +required
	Type ValueType `json:"type"`

	// integer is the value of type Integer.
	// +optional
	Integer *int64 `json:"integer,omitempty"`

	// string is the value of type String.
	// +optional
	String *string `json:"string,omitempty"`

	// boolean is the value of type Boolean.
	// +optional
	Boolean *bool `json:"boolean,omitempty"`

	// jsonRaw is the value of type JsonRaw: an object or a list as JSON text, 1024 bytes at most.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	JSONRaw *string `json:"jsonRaw,omitempty"`
}

// ValueType is the type of a reported value.
//
// +kubebuilder:validation:Enum=Integer;String;Boolean;JsonRaw
type ValueType string

const (
	// Integer is a 64-bit integer.
	Integer ValueType = "Integer"
	// String is text.
	String ValueType = "String"
	// Boolean is true or false.
	Boolean ValueType = "Boolean"
	// JSONRaw is an object or a list as JSON text.
	JSONRaw ValueType = "JsonRaw"
)
