{
  description = "ixbuild: a build tool whose artefacts are LLM inference benchmark results";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixpkgs-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      forAllSystems = nixpkgs.lib.genAttrs systems;
      pkgsFor = system: nixpkgs.legacyPackages.${system};
      manifest = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).package;

      ixbuild =
        pkgs:
        pkgs.rustPlatform.buildRustPackage {
          pname = manifest.name;
          version = manifest.version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          # Unit tests need no daemon; the tests of whole commands run outside, from a checkout.
          cargoTestFlags = [ "--lib" ];
          meta = {
            description = manifest.description;
            license = pkgs.lib.licenses.asl20;
            mainProgram = "ixbuild";
          };
        };

      app = description: program: {
        type = "app";
        program = "${program}";
        meta = { inherit description; };
      };
    in
    {
      packages = forAllSystems (system: {
        default = ixbuild (pkgsFor system);
      });

      apps = forAllSystems (
        system:
        let
          pkgs = pkgsFor system;
          binary = "${self.packages.${system}.default}/bin/ixbuild";
        in
        {
          default = app "ixbuild" binary;
          # Runs every selected arm that has no record; arguments and exit codes pass through.
          sweep = app "Run what has no record" (
            pkgs.writeShellScript "ixbuild-sweep" ''
              exec ${binary} run --only-changed "$@"
            ''
          );
        }
      );

      devShells = forAllSystems (
        system:
        let
          pkgs = pkgsFor system;
        in
        {
          default = pkgs.mkShell {
            packages = [
              pkgs.cargo
              pkgs.rustc
              pkgs.clippy
              pkgs.rustfmt
              pkgs.cargo-nextest
              pkgs.hyperfine
              pkgs.skopeo
            ];
          };
        }
      );

      checks = forAllSystems (
        system:
        let
          pkgs = pkgsFor system;
          package = self.packages.${system}.default;
        in
        {
          build = package;
          # Every config, recipe and golden curve of the tree reads, and every arm composes.
          configs = pkgs.runCommand "ixbuild-configs" { } ''
            ${package}/bin/ixbuild --project ${self} --store "$TMPDIR/store" plan --profile rehearsal > "$out"
          '';
        }
      );

      formatter = forAllSystems (system: (pkgsFor system).nixfmt);
    };
}
