import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.sasl.SaslClient;
import javax.security.sasl.SaslServer;
import org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerClientInitialResponse;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.scram.ScramCredentialCallback;
import org.apache.kafka.common.security.scram.ScramExtensionsCallback;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramMessages;
import org.apache.kafka.common.security.scram.internals.ScramSaslClient;
import org.apache.kafka.common.security.scram.internals.ScramSaslServer;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCredentialCallback;

/**
 * Kafka's own SASL, a command a line with fields separated by tabs, texts in hex:
 * "server MECHANISM USER PASSWORD ITERATIONS TOKEN_OWNER" and "client MECHANISM USER PASSWORD
 * TOKEN" begin a login by SCRAM, "step MESSAGE" goes on with it; "first" and "bearer" parse a first
 * message; "rules NAME=VALUE..." sets up the judge of tokens and "judge TOKEN" asks it. Whatever
 * fails is "error TAB reason".
 */
public class Sasl {
    private SaslServer server;
    private SaslClient client;
    private BrokerJwtValidator validator;

    public static void main(String[] args) throws Exception {
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", args[0]);
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", args[0]);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        var sasl = new Sasl();
        String line;
        while ((line = in.readLine()) != null) {
            try {
                out.println(sasl.answer(line.split("\t", -1)));
            } catch (Exception e) {
                out.println("error\t" + e.toString().replaceAll("\\s+", " "));
            }
        }
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "server":
                client = null;
                server = scramServer(words);
                return "ok";
            case "client":
                server = null;
                client = scramClient(words);
                return "ok";
            case "step":
                return step(bytes(words[1]));
            case "first": {
                var found = new ScramMessages.ClientFirstMessage(bytes(words[1]));
                return String.join("\t", hex(ScramFormatter.username(found.saslName())),
                    hex(found.nonce()), hex(found.authorizationId()),
                    String.valueOf(found.extensions().tokenAuthenticated()));
            }
            case "bearer": {
                var found = new OAuthBearerClientInitialResponse(bytes(words[1]));
                return hex(found.tokenValue()) + "\t" + hex(found.authorizationId());
            }
            case "rules":
                return rules(words);
            default: {
                OAuthBearerToken token = validator.validate(text(words[1]));
                return hex(token.principalName()) + "\t" + token.lifetimeMs()
                    + "\t" + hex(String.join(" ", new TreeSet<>(token.scope())));
            }
        }
    }

    private String step(byte[] message) throws Exception {
        if (server != null) {
            byte[] said = server.evaluateResponse(message);
            return server.isComplete()
                ? "done\t" + hex(said) + "\t" + hex(server.getAuthorizationID())
                : "challenge\t" + hex(said);
        }
        byte[] said = client.evaluateChallenge(message);
        return (client.isComplete() ? "done\t" : "challenge\t") + hex(said == null ? new byte[0] : said);
    }

    private static SaslServer scramServer(String[] words) throws Exception {
        ScramMechanism mechanism = ScramMechanism.forMechanismName(words[1]);
        ScramCredential credential = new ScramFormatter(mechanism)
            .generateCredential(text(words[3]), Integer.parseInt(words[4]));
        return new ScramSaslServer(mechanism, Map.of(), callbacks -> {
            boolean known = false;
            for (Callback callback : callbacks) {
                if (callback instanceof NameCallback name)
                    known = name.getDefaultName().equals(text(words[2]));
                else if (callback instanceof DelegationTokenCredentialCallback token) {
                    token.scramCredential(known ? credential : null);
                    token.tokenOwner(known ? text(words[5]) : null);
                    token.tokenExpiryTimestamp(Long.MAX_VALUE);
                } else if (callback instanceof ScramCredentialCallback scram)
                    scram.scramCredential(known ? credential : null);
            }
        });
    }

    private static SaslClient scramClient(String[] words) throws Exception {
        return new ScramSaslClient(ScramMechanism.forMechanismName(words[1]), callbacks -> {
            for (Callback callback : callbacks) {
                if (callback instanceof NameCallback name)
                    name.setName(text(words[2]));
                else if (callback instanceof PasswordCallback password)
                    password.setPassword(text(words[3]).toCharArray());
                else if (callback instanceof ScramExtensionsCallback more && words[4].equals("token"))
                    more.extensions(Map.of("tokenauth", "true"));
            }
        });
    }

    private String rules(String[] words) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("sasl.oauthbearer.expected.audience", List.of());
        settings.put("sasl.oauthbearer.scope.claim.name", "scope");
        settings.put("sasl.oauthbearer.sub.claim.name", "sub");
        settings.put("sasl.oauthbearer.clock.skew.seconds", 30);
        settings.put("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000L);
        for (int i = 1; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            settings.put(pair[0], pair[0].endsWith("audience") ? List.of(pair[1].split(",")) : pair[1]);
        }
        validator = new BrokerJwtValidator();
        String module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
        var entry = new AppConfigurationEntry(
            module, AppConfigurationEntry.LoginModuleControlFlag.REQUIRED, Map.of());
        validator.configure(settings, "OAUTHBEARER", List.of(entry));
        return "ok";
    }

    private static byte[] bytes(String hex) {
        return HexFormat.of().parseHex(hex);
    }

    private static String text(String hex) {
        return new String(bytes(hex), StandardCharsets.UTF_8);
    }

    private static String hex(byte[] data) {
        return HexFormat.of().formatHex(data);
    }

    private static String hex(String text) {
        return hex(text.getBytes(StandardCharsets.UTF_8));
    }
}
