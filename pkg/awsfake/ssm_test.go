package awsfake

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
)

// freely is for tests that are not about Parameter Store's throughput.
var freely = map[string]float64{"ssm": 0, "ssm:PutParameter": 0}

func put(name, value string, kind types.ParameterType) *ssm.PutParameterInput {
	return &ssm.PutParameterInput{Name: &name, Value: &value, Type: kind}
}

func TestParameterRules(t *testing.T) {
	b := newBench(t, Options{Rates: freely})
	b.account.SSM().AddKey("alias/demo")
	long := func(n int) string { return strings.Repeat("x", n) }
	with := func(in *ssm.PutParameterInput, f func(*ssm.PutParameterInput)) *ssm.PutParameterInput {
		f(in)
		return in
	}
	text, secure := types.ParameterTypeString, types.ParameterTypeSecureString
	tests := []struct {
		name string
		in   *ssm.PutParameterInput
		want string
	}{
		{"plain", put("/demo/a", "1", text), "1 Standard"},
		{"without a slash", put("demo.b", "1", text), "1 Standard"},
		{"again", put("/demo/a", "2", text), "ParameterAlreadyExists"},
		{"overwritten", with(put("/demo/a", "2", text), func(in *ssm.PutParameterInput) { in.Overwrite = aws.Bool(true) }), "2 Standard"},
		{"overwritten, without a type", with(put("/demo/a", "3", ""), func(in *ssm.PutParameterInput) { in.Overwrite = aws.Bool(true) }), "3 Standard"},
		{"another type", with(put("/demo/a", "2", secure), func(in *ssm.PutParameterInput) { in.Overwrite = aws.Bool(true) }), "HierarchyTypeMismatchException"},
		{"no type", put("/demo/c", "1", ""), "ValidationException"},
		{"no value", put("/demo/c", "", text), "ValidationException"},
		{"a template", put("/demo/c", "a {{ssm:b}} c", text), "ValidationException"},
		{"4096 bytes", put("/demo/4096", long(4096), text), "1 Standard"},
		{"4097 bytes", put("/demo/4097", long(4097), text), "ValidationException"},
		{"4096 characters of two bytes", put("/demo/wide", strings.Repeat("é", 4096), text), "ValidationException"},
		{"8192 bytes", with(put("/demo/8192", long(8192), secure), func(in *ssm.PutParameterInput) { in.Tier = types.ParameterTierAdvanced }), "1 Advanced"},
		{"8193 bytes", with(put("/demo/8193", long(8193), text), func(in *ssm.PutParameterInput) { in.Tier = types.ParameterTierAdvanced }), "ValidationException"},
		{"intelligent, small", with(put("/demo/i1", "1", text), func(in *ssm.PutParameterInput) { in.Tier = types.ParameterTierIntelligentTiering }), "1 Standard"},
		{"intelligent, large", with(put("/demo/i2", long(5000), text), func(in *ssm.PutParameterInput) { in.Tier = types.ParameterTierIntelligentTiering }), "1 Advanced"},
		{"back to standard", with(put("/demo/i2", "1", text), func(in *ssm.PutParameterInput) { in.Tier, in.Overwrite = types.ParameterTierStandard, aws.Bool(true) }), "ValidationException"},
		{"stays advanced", with(put("/demo/i2", "1", text), func(in *ssm.PutParameterInput) { in.Overwrite = aws.Bool(true) }), "2 Advanced"},
		{"of AWS", put("/aws/x", "1", text), "AccessDeniedException"},
		{"like AWS", put("AWSome", "1", text), "ValidationException"},
		{"like SSM", put("/Ssm/x", "1", text), "ValidationException"},
		{"a path without its slash", put("demo/x", "1", text), "ValidationException"},
		{"a space", put("/demo/a b", "1", text), "ValidationException"},
		{"spaces around", put(" /demo/around ", "1", text), "1 Standard"},
		{"a colon", put("/demo/a:1", "1", text), "ValidationException"},
		{"an empty part", put("/demo//a", "1", text), "ValidationException"},
		{"an ARN", put("arn:aws:ssm:us-west-2:123456789012:parameter/x", "1", text), "ValidationException"},
		{"15 levels", put(strings.Repeat("/l", 15), "1", text), "1 Standard"},
		{"16 levels", put(strings.Repeat("/l", 16), "1", text), "HierarchyLevelLimitExceededException"},
		{"1011 characters", put("/"+long(1011-45), "1", text), "1 Standard"},
		{"1012 characters", put("/"+long(1012-45), "1", text), "ValidationException"},
		{"a pattern", with(put("/demo/p", "12", text), func(in *ssm.PutParameterInput) { in.AllowedPattern = aws.String(`^\d+$`) }), "1 Standard"},
		{"against it", with(put("/demo/p", "x", text), func(in *ssm.PutParameterInput) { in.Overwrite = aws.Bool(true) }), "ParameterPatternMismatchException"},
		{"a key", with(put("/demo/k", "x", secure), func(in *ssm.PutParameterInput) { in.KeyId = aws.String("alias/demo") }), "1 Standard"},
		{"no such key", with(put("/demo/k2", "x", secure), func(in *ssm.PutParameterInput) { in.KeyId = aws.String("alias/none") }), "InvalidKeyId"},
		{"a key for a plain text", with(put("/demo/k3", "x", text), func(in *ssm.PutParameterInput) { in.KeyId = aws.String("alias/demo") }), "ValidationException"},
		{"what is not modelled", with(put("/demo/n", "x", text), func(in *ssm.PutParameterInput) { in.Policies = aws.String("[]") }), "SerializationException"},
	}
	for _, tt := range tests {
		out, err := b.ssm.PutParameter(t.Context(), tt.in)
		got := outcome(err)
		if err == nil {
			got = fmt.Sprintf("%d %s", out.Version, out.Tier)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s (%v)", tt.name, got, tt.want, err)
		}
	}
}

func TestParameterReads(t *testing.T) {
	b := newBench(t, Options{Rates: freely})
	for value := range 120 {
		in := put("/demo/secret", fmt.Sprint("value ", value), types.ParameterTypeSecureString)
		if in.Overwrite = aws.Bool(value > 0); value > 0 {
			in.Type = ""
		}
		if _, err := b.ssm.PutParameter(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string, decrypt bool) (string, string) {
		t.Helper()
		out, err := b.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &name, WithDecryption: &decrypt})
		if err != nil {
			return "", outcome(err)
		}
		return *out.Parameter.Value, fmt.Sprintf("%s %d %s%s", *out.Parameter.ARN, out.Parameter.Version, out.Parameter.Type, aws.ToString(out.Parameter.Selector))
	}
	const arn = "arn:aws:ssm:us-west-2:123456789012:parameter/demo/secret"
	for name, want := range map[string][2]string{
		"/demo/secret":     {"value 119", arn + " 120 SecureString"},
		arn:                {"value 119", arn + " 120 SecureString"},
		"/demo/secret:21":  {"value 20", arn + " 21 SecureString:21"},
		"/demo/secret:20":  {"", "ParameterVersionNotFound"},
		"/demo/secret:new": {"", "ParameterVersionNotFound"},
		"/demo/none":       {"", "ParameterNotFound"},
		"demo/secret":      {"", "ParameterNotFound"},
	} {
		if value, what := get(name, true); value != want[0] || what != want[1] {
			t.Errorf("%s: %s, %s; want %s, %s", name, value, what, want[0], want[1])
		}
	}
	if value, _ := get("/demo/secret", false); strings.Contains(value, "119") || len(value) < 40 {
		t.Errorf("the secret without decryption is %q", value)
	}
	out, err := b.ssm.GetParameters(t.Context(), &ssm.GetParametersInput{Names: []string{"/demo/secret", "/demo/none"}})
	if err != nil || len(out.Parameters) != 1 || !slices.Equal(out.InvalidParameters, []string{"/demo/none"}) {
		t.Errorf("several: %+v, %v", out, err)
	}
	_, err = b.ssm.GetParameters(t.Context(), &ssm.GetParametersInput{Names: slices.Repeat([]string{"x"}, 11)})
	wantCode(t, err, "ValidationException", "")
	deleted, err := b.ssm.DeleteParameters(t.Context(), &ssm.DeleteParametersInput{Names: []string{"/demo/secret", "/demo/none"}})
	if err != nil || !slices.Equal(deleted.DeletedParameters, []string{"/demo/secret"}) || !slices.Equal(deleted.InvalidParameters, []string{"/demo/none"}) {
		t.Errorf("deleting: %+v, %v", deleted, err)
	}
	_, err = b.ssm.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: aws.String("/demo/secret")})
	var missing *types.ParameterNotFound
	if !errors.As(err, &missing) {
		t.Errorf("deleting what is gone: %v", err)
	}
}

// TestParametersByPath reads as the real paginator does: over pages that are empty though more follow.
func TestParametersByPath(t *testing.T) {
	b := newBench(t, Options{Rates: freely})
	store := b.account.SSM()
	for n := range 23 {
		for _, name := range []string{fmt.Sprintf("/demo/deep/x%02d", n), fmt.Sprintf("/demo/y%02d", n), fmt.Sprintf("/demolition/z%02d", n)} {
			if _, err := store.Put(Parameter{Name: name, Value: "v"}, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func(path string, recursive bool) (names []string, pages, empty int) {
		t.Helper()
		p := ssm.NewGetParametersByPathPaginator(b.ssm, &ssm.GetParametersByPathInput{Path: &path, Recursive: &recursive})
		for ; p.HasMorePages(); pages++ {
			out, err := p.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(out.Parameters) == 0 {
				empty++
			}
			for _, parameter := range out.Parameters {
				names = append(names, *parameter.Name)
			}
		}
		return names, pages, empty
	}
	for _, path := range []string{"/demo", "/demo/"} {
		names, pages, empty := read(path, true)
		if diff := cmp.Diff(store.Names("/demo"), names); diff != "" || pages != 5 || empty != 0 {
			t.Errorf("%s recursively: %d pages, %d of them empty (-want +got):\n%s", path, pages, empty, diff)
		}
		names, pages, empty = read(path, false)
		if len(names) != 23 || pages != 5 || empty != 2 || !slices.IsSorted(names) {
			t.Errorf("%s: %d names on %d pages, %d of them empty; want 23 on 5, 2 empty", path, len(names), pages, empty)
		}
	}
	if names, _, _ := read("/", true); len(names) != 69 {
		t.Errorf("everything: %d names, want 69", len(names))
	}
	if names, _, _ := read("/none", true); len(names) != 0 {
		t.Errorf("below nothing: %v", names)
	}
	for _, in := range []*ssm.GetParametersByPathInput{
		{Path: aws.String("demo")}, {Path: aws.String("/demo/*")}, {Path: aws.String("/demo"), MaxResults: aws.Int32(11)}, {Path: aws.String("/demo"), MaxResults: aws.Int32(0)},
	} {
		_, err := b.ssm.GetParametersByPath(t.Context(), in)
		wantCode(t, err, "ValidationException", "")
	}
	_, err := b.ssm.GetParametersByPath(t.Context(), &ssm.GetParametersByPathInput{Path: aws.String("/demo"), NextToken: aws.String("x")})
	wantCode(t, err, "InvalidNextToken", "")
}

func TestParameterThroughput(t *testing.T) {
	b := newBench(t, Options{})
	_, err := b.ssm.PutParameter(t.Context(), put("/demo/a", "1", types.ParameterTypeString))
	if err != nil {
		t.Fatal(err)
	}
	throttled := func(n int, call func() error) (refused int) {
		t.Helper()
		for range n {
			var api smithy.APIError
			switch err := call(); {
			case err == nil:
			case errors.As(err, &api) && api.ErrorCode() == "ThrottlingException" && api.ErrorMessage() == "Rate exceeded":
				refused++
			default:
				t.Fatal(err)
			}
		}
		return refused
	}
	b.clock.Advance(time.Second)
	overwrite := put("/demo/a", "2", "")
	overwrite.Overwrite = aws.Bool(true)
	if n := throttled(5, func() error { _, err := b.ssm.PutParameter(t.Context(), overwrite); return err }); n != 2 {
		t.Errorf("%d of 5 writes at once were throttled, want 2", n)
	}
	if n := throttled(50, func() error {
		_, err := b.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String("/demo/a")})
		return err
	}); n != 10 {
		t.Errorf("%d of 50 reads at once were throttled, want 10", n)
	}
	if p, ok := b.account.SSM().Parameter("/demo/a"); !ok || p.Version != 4 || p.Value != "2" {
		t.Errorf("the parameter is %+v, want version 4", p)
	}
}
