// Package feedback reads from an object the values that the feedback rules of a ManifestWork request. It is pure: it calls
// no API and keeps no state.
//
// # Types of values
//
// A path is evaluated on the whole object. What it finds decides the type of the value:
//
//   - an integer, a text or a boolean is an Integer, a String or a Boolean;
//   - a number that is no 64-bit integer is a JsonRaw with its JSON text, such as 0.75: clients that parse JsonRaw as JSON
//     get the number, and clients that know only the other types skip it, as they always had to;
//   - an object or a list is a JsonRaw;
//   - several results, as of [*], are a JsonRaw with the list of them;
//   - nothing, or null, is no value. That is no error: fields of status come and go.
package feedback
