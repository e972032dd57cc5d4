package awsfake

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
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
	over := func(in *ssm.PutParameterInput) *ssm.PutParameterInput {
		in.Overwrite = aws.Bool(true)
		return in
	}
	text, secure := types.ParameterTypeString, types.ParameterTypeSecureString
	unknown := put("/demo/n", "x", text)
	unknown.Policies = aws.String("[]")
	tests := []struct {
		name string
		in   *ssm.PutParameterInput
		want string
	}{
		{"plain", put("/demo/a", "1", text), "1 Standard"},
		{"without a slash", put("demo.b", "1", text), "1 Standard"},
		{"again", put("/demo/a", "2", text), "ParameterAlreadyExists"},
		{"overwritten", over(put("/demo/a", "2", text)), "2 Standard"},
		{"overwritten, without a type", over(put("/demo/a", "3", "")), "3 Standard"},
		{"another type", over(put("/demo/a", "2", secure)), "HierarchyTypeMismatchException"},
		{"no type", put("/demo/c", "1", ""), "ValidationException"},
		{"no value", put("/demo/c", "", text), "ValidationException"},
		{"4096 bytes", put("/demo/4096", strings.Repeat("x", 4096), text), "1 Standard"},
		{"4097 bytes", put("/demo/4097", strings.Repeat("x", 4097), text), "ValidationException"},
		{"4096 characters of two bytes", put("/demo/wide", strings.Repeat("é", 4096), text), "ValidationException"},
		{"of AWS", put("/aws/x", "1", text), "ValidationException"},
		{"like SSM", put("/Ssm/x", "1", text), "ValidationException"},
		{"a path without its slash", put("demo/x", "1", text), "ValidationException"},
		{"a colon", put("/demo/a:1", "1", text), "ValidationException"},
		{"an empty part", put("/demo//a", "1", text), "ValidationException"},
		{"what is not modelled", unknown, "SerializationException"},
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

// TestParametersAtOnce: what there is comes in the alphabet's order, the rest is named, and the quota is that of single reads.
func TestParametersAtOnce(t *testing.T) {
	b := newBench(t, Options{})
	for _, name := range []string{"/demo/b", "/demo/a"} {
		if _, err := b.account.SSM().Put(Parameter{Name: name, Type: ParameterSecure, Value: "of " + name}, false); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"/demo/none", "/demo/b", "/demo/a:1", "/demo/a:2"}
	out, err := b.ssm.GetParameters(t.Context(), &ssm.GetParametersInput{Names: names, WithDecryption: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range out.Parameters {
		got = append(got, *p.Name+aws.ToString(p.Selector)+" "+*p.Value)
	}
	if !slices.Equal(got, []string{"/demo/a:1 of /demo/a", "/demo/b of /demo/b"}) || !slices.Equal(out.InvalidParameters, []string{"/demo/a:2", "/demo/none"}) {
		t.Errorf("%q, invalid %q", got, out.InvalidParameters)
	}
	sealed, err := b.ssm.GetParameters(t.Context(), &ssm.GetParametersInput{Names: []string{"/demo/a"}})
	if err != nil || strings.Contains(*sealed.Parameters[0].Value, "of ") {
		t.Errorf("without decryption: %v, %v", sealed, err)
	}
	for _, names := range [][]string{{}, eleven(), {"/demo/a", "/demo/a"}} {
		_, err := b.ssm.GetParameters(t.Context(), &ssm.GetParametersInput{Names: names})
		wantCode(t, err, "ValidationException", "")
	}
	b.clock.Advance(time.Second)
	var refused int
	for n := range 50 {
		in := &ssm.GetParametersInput{Names: []string{"/demo/a", "/demo/b"}}
		if _, err = b.ssm.GetParameters(t.Context(), in); n%2 == 0 {
			_, err = b.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String("/demo/a")})
		}
		if err != nil {
			wantCode(t, err, "ThrottlingException", "Rate exceeded")
			refused++
		}
	}
	if refused == 0 {
		t.Error("single reads and several at once have one quota, and nothing was refused")
	}
}

const imageParameter = "/hardtack/stable/image-id"

func (s *shop) promote(t *testing.T, image string) (int64, error) {
	t.Helper()
	in := put(imageParameter, image, types.ParameterTypeString)
	in.DataType, in.Overwrite = aws.String(dataImage), aws.Bool(true)
	out, err := s.ssm.PutParameter(t.Context(), in)
	if err != nil {
		return 0, err
	}
	return out.Version, nil
}

// TestImageParameters: PutParameter is answered with success and changes nothing where the image does not exist.
func TestImageParameters(t *testing.T) {
	s := newShop(t, Options{Regions: []string{awayRegion}})
	first := s.register(t, imageOf("one", s.publish(t, ebs.StartSnapshotInput{}, nil)))
	second := s.register(t, imageOf("two", s.publish(t, ebs.StartSnapshotInput{}, nil)))
	value := func() string {
		out, err := s.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String(imageParameter)})
		if err != nil {
			return codeOf(err)
		}
		return fmt.Sprint(*out.Parameter.Value, " ", out.Parameter.Version, " ", *out.Parameter.DataType)
	}
	for _, step := range []struct {
		image string
		after string
	}{
		{"ami-0123456789abcdef0", "ParameterNotFound"},
		{first, first + " 1 aws:ec2:image"},
		{"ami-0123456789abcdef0", first + " 1 aws:ec2:image"},
		{"no image at all", first + " 1 aws:ec2:image"},
		{second, second + " 2 aws:ec2:image"},
	} {
		if _, err := s.promote(t, step.image); err != nil {
			t.Fatal(err)
		}
		if got := value(); got != step.after {
			t.Errorf("after %s was put it is %s, want %s", step.image, got, step.after)
		}
	}
	if names := s.account.SSMIn(awayRegion).Names("/"); len(names) != 0 {
		t.Errorf("in another region there are %q", names)
	}
	if _, err := s.in(awayRegion, anyone()).promote(t, first); err != nil {
		t.Fatal(err)
	}
	s.pass(time.Second)
	if names := s.account.SSMIn(awayRegion).Names("/"); len(names) != 0 {
		t.Errorf("an image of another region was promoted: %q", names)
	}
	secret := put("/x", first, types.ParameterTypeSecureString)
	secret.DataType = aws.String(dataImage)
	_, err := s.ssm.PutParameter(t.Context(), secret)
	wantCode(t, err, "ValidationException", "")
}

func TestParameterHistory(t *testing.T) {
	b := newBench(t, Options{Rates: freely})
	for n := range 3 {
		if _, err := b.account.SSM().Put(Parameter{Name: "/demo/p", Value: fmt.Sprint("v", n+1), User: "anna"}, n > 0); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	for p := ssm.NewGetParameterHistoryPaginator(b.ssm, &ssm.GetParameterHistoryInput{Name: aws.String("/demo/p"), MaxResults: aws.Int32(2)}); p.HasMorePages(); {
		page, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range page.Parameters {
			lines = append(lines, fmt.Sprint(h.Version, " ", *h.Value, " ", *h.DataType, " ", *h.LastModifiedUser))
		}
	}
	if want := []string{"1 v1 text anna", "2 v2 text anna", "3 v3 text anna"}; !slices.Equal(lines, want) {
		t.Errorf("the history is %q, want %q", lines, want)
	}
	_, err := b.ssm.GetParameterHistory(t.Context(), &ssm.GetParameterHistoryInput{Name: aws.String("/demo/none")})
	wantCode(t, err, "ParameterNotFound", "")
}

// Filters compare whole values unless they say BeginsWith, and all of them have to let a parameter pass.
func TestDescribeParametersByName(t *testing.T) {
	s := newShop(t, Options{})
	for _, name := range []string{"/hardtack/a/image-id", "/hardtack/b", "/other/hardtack/c"} {
		if _, err := s.account.SSM().Put(Parameter{Name: name, Value: "v"}, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.account.SSM().Put(Parameter{Name: "/hardtack/secret", Value: "v", Type: "SecureString"}, false); err != nil {
		t.Fatal(err)
	}
	for want, filters := range map[string][]types.ParameterStringFilter{
		"/hardtack/a/image-id /hardtack/b": {
			{Key: aws.String("Name"), Option: aws.String("BeginsWith"), Values: []string{"/hardtack/"}}, {Key: aws.String("Type"), Values: []string{"String"}},
		},
		"/hardtack/b": {{Key: aws.String("Name"), Option: aws.String("Equals"), Values: []string{"/hardtack/b", "/hardtack/"}}},
		"":            {{Key: aws.String("Name"), Values: []string{"/hardtack/"}}},
	} {
		out, err := s.ssm.DescribeParameters(t.Context(), &ssm.DescribeParametersInput{ParameterFilters: filters})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range out.Parameters {
			names = append(names, *m.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for code, f := range map[string]types.ParameterStringFilter{
		"InvalidFilterOption": {Key: aws.String("Name"), Option: aws.String("Recursive"), Values: []string{"/"}},
		"InvalidFilterKey":    {Key: aws.String("Colour"), Values: []string{"red"}},
		"InvalidFilterValue":  {Key: aws.String("Name")},
	} {
		_, err := s.ssm.DescribeParameters(t.Context(), &ssm.DescribeParametersInput{ParameterFilters: []types.ParameterStringFilter{f}})
		wantCode(t, err, code, "")
	}
}

func TestDescribeParameters(t *testing.T) {
	s := newShop(t, Options{})
	image := s.register(t, imageOf("one", s.publish(t, ebs.StartSnapshotInput{}, nil)))
	for n := range 60 {
		if _, err := s.account.SSM().Put(Parameter{Name: fmt.Sprintf("/demo/p%02d", n), Value: "v"}, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.promote(t, image); err != nil {
		t.Fatal(err)
	}
	var names []string
	pages := 0
	for p := ssm.NewDescribeParametersPaginator(s.ssm, &ssm.DescribeParametersInput{ParameterFilters: []types.ParameterStringFilter{
		{Key: aws.String("DataType"), Values: []string{dataImage}},
	}}); p.HasMorePages(); pages++ {
		page, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Parameters {
			names = append(names, *m.Name)
		}
	}
	if pages != 2 || !slices.Equal(names, []string{imageParameter}) {
		t.Errorf("%d pages with %q, want an empty one and one with the parameter", pages, names)
	}
}
