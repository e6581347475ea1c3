package celbudget

import (
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/utils/lru"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

const (
	// mostText is how many bytes a text that an operation makes may have: as much as an object.
	mostText = 1 << 20
	// mostElements is how many elements a list that an operation makes may have.
	mostElements = 100_000
	// mostWeight is how many values an operation may read that reads lists and maps to their depth. A list that holds another one
	// twice is small, and to compare it takes twice as long.
	mostWeight = 100_000
	// mostPairs is how many elements of lists may be compared with each other.
	mostPairs = 1_000_000
)

// checks run on operations before they start.
var checks = map[string]func([]ref.Val) error{
	"_+_": checkSum, "replace": checkReplace, "join": checkJoin, "split": checkSplit, "format": checkWeight, "strings.quote": checkText,
	"matches": checkMatch, "find": checkMatch, "findAll": checkMatch, "parseJSON": checkText, "string": checkWeight,
	"_==_": checkEquality, "_!=_": checkEquality, "@in": checkWeight, "indexOf": checkWeight, "lastIndexOf": checkWeight,
	"includes": checkWeight,
	"distinct": checkPairs, "flatten": checkWeight,
	"quantity": checkQuantity, "isQuantity": checkQuantity,
	"sets.contains": checkPairs, "sets.equivalent": checkPairs, "sets.intersects": checkPairs,
}

// guard puts the checks before the operations of a program.
type guard struct {
	implementations map[string]*functions.Overload // by overload and function
}

func (g guard) decorate(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := node.(interpreter.InterpretableCall)
	if !ok {
		return node, nil
	}
	check := checks[call.Function()]
	if check == nil || comparesWithConstant(call) {
		return node, nil
	}
	operate := g.operation(call)
	if operate == nil {
		return node, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		if err := check(args); err != nil {
			return types.NewErr("%v", err)
		}
		return operate(args)
	}), nil
}

// comparesWithConstant reports whether a comparison goes no deeper than what is written down in the expression.
func comparesWithConstant(call interpreter.InterpretableCall) bool {
	switch call.Function() {
	case "_==_", "_!=_", "@in":
		return slices.ContainsFunc(call.Args(), func(arg interpreter.InterpretableV2) bool {
			_, constant := arg.(interpreter.InterpretableConst)
			return constant
		})
	}
	return false
}

// operation is what a call does, nil if that is not known.
func (g guard) operation(call interpreter.InterpretableCall) func([]ref.Val) ref.Val {
	switch call.Function() {
	case "_==_":
		return func(args []ref.Val) ref.Val { return types.Equal(args[0], args[1]) }
	case "_!=_":
		return func(args []ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }
	}
	implementation := g.implementations[call.OverloadID()]
	if implementation == nil {
		implementation = g.implementations[call.Function()]
	}
	if implementation == nil || implementation.NonStrict {
		return nil
	}
	return func(args []ref.Val) ref.Val { return operate(implementation, call, args) }
}

// operate calls an implementation as an interpreter does.
func operate(i *functions.Overload, call interpreter.InterpretableCall, args []ref.Val) ref.Val {
	if i.OperandTrait == 0 || args[0].Type().HasTrait(i.OperandTrait) {
		switch {
		case i.Unary != nil && len(args) == 1:
			return i.Unary(args[0])
		case i.Binary != nil && len(args) == 2:
			return i.Binary(args[0], args[1])
		case i.Function != nil:
			return i.Function(args...)
		}
	}
	if receiver, ok := args[0].(traits.Receiver); ok {
		return receiver.Receive(call.Function(), call.OverloadID(), args[1:])
	}
	return types.NewErr("no such overload: %s", call.Function())
}

func implementationsOf(env *cel.Env) (map[string]*functions.Overload, error) {
	all := map[string]*functions.Overload{}
	for name, function := range env.Functions() {
		if checks[name] == nil {
			continue
		}
		bindings, err := function.Bindings()
		if err != nil {
			return nil, err
		}
		for _, binding := range bindings {
			all[binding.Operator] = binding
		}
	}
	return all, nil
}

// constantMatches compiles a regular expression once that is written down in the expression.
func constantMatches(overload string) *interpreter.RegexOptimization {
	return &interpreter.RegexOptimization{Function: "matches", OverloadID: overload, RegexIndex: 1,
		Factory: func(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
			expression, err := regexp.Compile(pattern)
			if err != nil {
				return nil, err
			}
			return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
				text, ok := args[0].(types.String)
				if !ok {
					return types.MaybeNoSuchOverloadErr(args[0])
				}
				if err := checkMatch(args); err != nil {
					return types.NewErr("%v", err)
				}
				return types.Bool(expression.MatchString(string(text)))
			}), nil
		}}
}

func checkQuantity(args []ref.Val) error { return budget.Quantity(textOf(args[0])) }

func checkText(args []ref.Val) error { return text(lengthOf(args[0])) }

func text(n int) error { return budget.Length("a text in a CEL expression", n, mostText) }

func checkSum(args []ref.Val) error {
	total := lengthOf(args[0]) + lengthOf(args[1])
	if _, list := args[0].(traits.Lister); list {
		return budget.Count("elements of a list in a CEL expression", total, mostElements)
	}
	return text(total)
}

func checkReplace(args []ref.Val) error {
	in, old, replacement := textOf(args[0]), textOf(args[1]), lengthOf(args[2])
	return text(len(in) + strings.Count(in, old)*max(replacement-len(old), 0))
}

func checkJoin(args []ref.Val) error {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return nil
	}
	separator := 0
	if len(args) > 1 {
		separator = lengthOf(args[1])
	}
	total := 0
	for it := list.Iterator(); it.HasNext() == types.True && total <= mostText; {
		total += separator + lengthOf(it.Next())
	}
	return text(total)
}

func checkSplit(args []ref.Val) error {
	return budget.Count("elements of a list in a CEL expression", strings.Count(textOf(args[0]), textOf(args[1])), mostElements)
}

// parts are how many parts regular expressions have: an expression is mostly evaluated many times.
var parts = lru.New(1000)

func partsOf(pattern string) int {
	if n, ok := parts.Get(pattern); ok {
		return n.(int)
	}
	n := budget.RegexpParts(pattern)
	parts.Add(pattern, n)
	return n
}

func checkMatch(args []ref.Val) error {
	pattern := textOf(args[1])
	if err := budget.Regexp(pattern); err != nil {
		return err
	}
	return budget.Match(partsOf(pattern), lengthOf(args[0]))
}

func checkEquality(args []ref.Val) error {
	if lengthOf(args[0]) != lengthOf(args[1]) {
		return nil // it is decided by that
	}
	return checkWeight(args)
}

func checkWeight(args []ref.Val) error {
	left := mostWeight
	for _, arg := range args {
		if weigh(arg, &left); left < 0 {
			return &budget.Exceeded{What: "a list or map in a CEL expression has too many elements, counted to its depth", Limit: "100000"}
		}
	}
	return nil
}

func checkPairs(args []ref.Val) error {
	if err := checkWeight(args); err != nil {
		return err
	}
	return budget.Count("pairs of elements in a CEL expression", lengthOf(args[0])*lengthOf(args[len(args)-1]), mostPairs)
}

// weigh takes the number of values in a value, as long as there are any left. Of a long text it takes more.
func weigh(value ref.Val, left *int) {
	if *left--; *left < 0 {
		return
	}
	switch value := value.(type) {
	case types.String:
		*left -= len(value) / 64
	case traits.Mapper:
		for it := value.Iterator(); it.HasNext() == types.True && *left >= 0; {
			key := it.Next()
			weigh(key, left)
			weigh(value.Get(key), left)
		}
	case traits.Lister:
		for it := value.Iterator(); it.HasNext() == types.True && *left >= 0; {
			weigh(it.Next(), left)
		}
	}
}

func textOf(value ref.Val) string {
	text, _ := value.(types.String)
	return string(text)
}

// lengthOf is the length of a text, a list or a map; 0 of other values.
func lengthOf(value ref.Val) int {
	switch value := value.(type) {
	case types.String:
		return len(value)
	case types.Bytes:
		return len(value)
	case traits.Lister:
		return sizeOf(value)
	case traits.Mapper:
		return sizeOf(value)
	}
	return 0
}

func sizeOf(value traits.Sizer) int {
	n, _ := value.Size().(types.Int)
	return int(n)
}
