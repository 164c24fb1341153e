import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Answers each line of its input, a JSON object whose "do" says what, with what Kafka's own classes
 * make of it, as one line of JSON. What fails is {"error": class, "message": text}.
 *
 * acls: loads ACLs, answers questions about rights. filter: which of the ACLs match filters.
 * validate: why an ACL cannot be created. codes: the enums, by number. supported: the bit fields of
 * operations by resource type. map: principal mapping rules upon names. name: the text of a subject.
 */
public class Auth {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final StandardAuthorizer AUTHORIZER = new StandardAuthorizer();

    public static void main(String[] args) throws Exception {
        AUTHORIZER.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        AUTHORIZER.completeInitialLoad();
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        out.flush();
    }

    private static JsonNode answer(JsonNode asked) {
        try {
            return switch (asked.get("do").asText()) {
                case "acls" -> decisions(asked);
                case "filter" -> filtered(asked);
                case "validate" -> validated(asked.get("acl"));
                case "codes" -> codes();
                case "supported" -> supported();
                case "map" -> mapped(asked);
                default -> JSON.getNodeFactory().textNode(
                    new X500Principal(asked.get("der").binaryValue()).getName());
            };
        } catch (Throwable e) {
            return failed(e);
        }
    }

    private static ObjectNode failed(Throwable e) {
        Throwable cause = e instanceof InvocationTargetException ? e.getCause() : e;
        return JSON.createObjectNode().put("error", cause.getClass().getSimpleName())
            .put("message", cause.getMessage());
    }

    /** An ACL: [resource type, name, pattern type, principal, host, operation, permission]. */
    private static StandardAcl acl(JsonNode from) {
        return new StandardAcl(
            ResourceType.fromCode((byte) from.get(0).asInt()), from.get(1).asText(),
            PatternType.fromCode((byte) from.get(2).asInt()), from.get(3).asText(),
            from.get(4).asText(), AclOperation.fromCode((byte) from.get(5).asInt()),
            AclPermissionType.fromCode((byte) from.get(6).asInt()));
    }

    private static void load(JsonNode acls) {
        var all = new HashMap<Uuid, StandardAcl>();
        for (JsonNode each : acls) {
            all.put(new Uuid(1, all.size() + 1), acl(each));
        }
        AUTHORIZER.loadSnapshot(all);
    }

    /** A question: [principal, host, operation, resource type, name], without name: any resource. */
    private static JsonNode decisions(JsonNode asked) throws Exception {
        AUTHORIZER.configure(Map.of(
            "super.users", asked.get("super").asText(),
            "allow.everyone.if.no.acl.found", asked.get("everyone").asText()));
        load(asked.get("acls"));
        ArrayNode out = JSON.createArrayNode();
        for (JsonNode question : asked.get("questions")) {
            var context = new Context(question.get(0).asText(), question.get(1).asText());
            var operation = AclOperation.fromCode((byte) question.get(2).asInt());
            var type = ResourceType.fromCode((byte) question.get(3).asInt());
            AuthorizationResult result;
            if (question.get(4).isNull()) {
                result = AUTHORIZER.authorizeByResourceType(context, operation, type);
            } else {
                var resource = new ResourcePattern(type, question.get(4).asText(), PatternType.LITERAL);
                var action = new Action(operation, resource, 1, false, false);
                result = AUTHORIZER.authorize(context, List.of(action)).get(0);
            }
            out.add(result == AuthorizationResult.ALLOWED);
        }
        return out;
    }

    /** For each filter the places of the ACLs that match it. */
    private static JsonNode filtered(JsonNode asked) {
        ArrayNode out = JSON.createArrayNode();
        for (JsonNode from : asked.get("filters")) {
            var filter = new AclBindingFilter(
                new ResourcePatternFilter(ResourceType.fromCode((byte) from.get(0).asInt()),
                    from.get(1).textValue(), PatternType.fromCode((byte) from.get(2).asInt())),
                new AccessControlEntryFilter(from.get(3).textValue(), from.get(4).textValue(),
                    AclOperation.fromCode((byte) from.get(5).asInt()),
                    AclPermissionType.fromCode((byte) from.get(6).asInt())));
            ArrayNode places = out.addArray();
            for (int place = 0; place < asked.get("acls").size(); place++) {
                if (filter.matches(acl(asked.get("acls").get(place)).toBinding())) {
                    places.add(place);
                }
            }
        }
        return out;
    }

    private static JsonNode validated(JsonNode from) throws Exception {
        var method = Class.forName("org.apache.kafka.controller.AclControlManager")
            .getDeclaredMethod("validateNewAcl", AclBinding.class);
        method.setAccessible(true);
        method.invoke(null, acl(from).toBinding());
        return JSON.nullNode();
    }

    private static JsonNode codes() {
        ObjectNode out = JSON.createObjectNode();
        for (int code = Byte.MIN_VALUE; code <= Byte.MAX_VALUE; code++) {
            out.putArray(String.valueOf(code))
                .add(ResourceType.fromCode((byte) code).name())
                .add(PatternType.fromCode((byte) code).name())
                .add(AclOperation.fromCode((byte) code).name())
                .add(AclPermissionType.fromCode((byte) code).name());
        }
        return out;
    }

    private static JsonNode supported() {
        ObjectNode out = JSON.createObjectNode();
        for (ResourceType type : ResourceType.values()) {
            if (type != ResourceType.UNKNOWN && type != ResourceType.ANY) {
                var codes = AclEntry.supportedOperations(type).stream().map(AclOperation::code);
                out.put(type.name(), Utils.to32BitField(
                    codes.collect(java.util.stream.Collectors.toSet())));
            }
        }
        return out;
    }

    private static JsonNode mapped(JsonNode asked) {
        var mapper = SslPrincipalMapper.fromRules(asked.get("rules").asText());
        ArrayNode out = JSON.createArrayNode();
        for (JsonNode name : asked.get("names")) {
            try {
                out.add(mapper.getName(name.asText()));
            } catch (Exception e) {
                out.add(failed(e));
            }
        }
        return out;
    }

    /** Who asks, and from where. */
    private record Context(String text, String host) implements AuthorizableRequestContext {
        @Override
        public KafkaPrincipal principal() {
            int colon = text.indexOf(':');
            return new KafkaPrincipal(text.substring(0, colon), text.substring(colon + 1));
        }

        @Override
        public InetAddress clientAddress() {
            try {
                return InetAddress.getByName(host);
            } catch (java.net.UnknownHostException e) {
                throw new IllegalArgumentException(e);
            }
        }

        @Override
        public String listenerName() {
            return "";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
